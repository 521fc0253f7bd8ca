import copy
import random
import re

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    ConvBertConfig,
    ConvBertForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    ElectraConfig,
    ElectraForMaskedLM,
    MobileBertConfig,
    MobileBertForMaskedLM,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
)

from ternarybert.augment import MaskedModel
from ternarybert.augment.masked import PromptEncoder, PromptTemplate
from ternarybert.augment.words import WordPosition, find_words
from ternarybert.errors import HubError, RecipeError, UnsupportedModelError
from tests import tiny
from tests.augment import language

BATCHES = [1, 5, 64]


def sentences(count=40, seed=5):
    generator = random.Random(seed)
    return [language.sentence(generator) for _ in range(count)]


def word_positions(texts):
    return [place for text in texts for place in find_words(text, language.STOP_WORDS)]


def prompts(source, texts):
    return list(dict.fromkeys(asked.prompt for asked in source._encode(word_positions(texts)) if asked))


def untrained(tokenizer, **changes):
    """A model with random weights, whose scores lie close together."""
    torch.manual_seed(1)
    settings = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    return BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **settings | changes))


def test_candidates_are_the_words_that_fit(masked):
    asked = word_positions(sentences(100))
    expected = [tuple(language.WORDS[language.marker_of(place.text)]) for place in asked]
    assert masked.candidates(asked) == expected
    # Fifteen pieces fit. Pieces that go on and punctuation are left out of them, not replaced.
    assert sorted({len(words) for words in expected}) == [13, 14, 15]


def test_the_candidates_are_far_ahead_of_the_rest(masked):
    """The model has really learned the language; no test of it hangs on a hair."""
    batches = masked._batches(prompts(masked, sentences(30)))
    top = torch.cat([masked._scores(batch).topk(16).values for batch in batches])
    assert (top[:, 14] - top[:, 15]).min() > 1


def test_only_words_of_one_piece_are_its_business(masked):
    text = "mi animala mi animalx ka qu ka Animalb"
    found = masked.candidates(word_positions([text]))
    assert [words is None for words in found] == [False, True, True, False]
    assert masked.candidates([]) == []


@pytest.mark.parametrize("trained", [True, False])
def test_batches_do_not_matter(model, tokenizer, trained):
    each = model if trained else untrained(tokenizer)
    asked = word_positions(sentences(40))
    source = MaskedModel(each, tokenizer)
    alone = [source.candidates([place])[0] for place in asked]
    for batch in BATCHES:
        assert MaskedModel(each, tokenizer, batch_size=batch).candidates(asked) == alone


class Noisy(MaskedModel):
    """As on a machine whose sums depend on the batch far more than they do here."""

    def _scores(self, batch):
        scores = super()._scores(batch)
        if len(batch) == 1:
            return scores
        noise = torch.Generator().manual_seed(len(batch))
        return scores + scores.abs().amax(1, keepdim=True) * 4e-5 * (torch.rand(scores.shape, generator=noise) - 0.5)


def test_noise_in_the_last_digits_does_not_matter(tokenizer):
    each = untrained(tokenizer)
    with torch.no_grad():  # pieces in pairs that score nearly alike: the border of the best fifteen always splits one
        weight = each.get_output_embeddings().weight
        weight[1::2] = weight[: len(weight) // 2 * 2 : 2] * (1 + 1e-6)
    asked = word_positions(sentences(40))
    source = MaskedModel(each, tokenizer)
    alone = [source.candidates([place])[0] for place in asked]
    noisy = Noisy(each, tokenizer)
    assert noisy.candidates(asked) == alone
    noisy._best_alone = lambda asked: noisy._scores([asked.prompt] * 2)[0].topk(15).indices.sort().values.tolist()
    assert noisy.candidates(asked) != alone  # there was something to get wrong


def test_equal_scores_the_smaller_ids_win(tokenizer):
    each = untrained(tokenizer)
    torch.nn.init.zeros_(each.cls.predictions.decoder.weight)
    words = language.WORDS["mi"][:7]  # behind five special pieces and three markers
    for batch in BATCHES:
        found = MaskedModel(each, tokenizer, batch_size=batch).candidates(word_positions(sentences(3)))
        assert {tuple(candidates) for candidates in found} == {(*language.MARKERS, *words)}


def test_equal_prompts_run_once_and_lengths_stay_together(masked, monkeypatch):
    batches = []
    scores = MaskedModel._scores
    monkeypatch.setattr(
        MaskedModel, "_scores", lambda self, batch: batches.append([len(q.ids) for q in batch]) or scores(self, batch)
    )
    asked = word_positions(sentences(40) * 3)
    masked.candidates(asked)
    asked_about = [length for batch in batches for length in batch]
    assert len(asked_about) == len(set(asked)) < len(asked)
    assert asked_about == sorted(asked_about, reverse=True)
    assert all(len(set(batch)) == 1 for batch in batches)


def test_batches_do_not_matter_to_models_that_padding_reaches(tokenizer):
    """ConvBERT's convolutions look at the neighbors of a piece, padded ones too."""
    torch.manual_seed(1)
    settings = {"hidden_size": 32, "embedding_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = ConvBertConfig(vocab_size=len(tokenizer), intermediate_size=48, initializer_range=0.2, **settings)
    each, asked = ConvBertForMaskedLM(config), word_positions(sentences(40))
    alone, together = (MaskedModel(each, tokenizer, batch_size=size).candidates(asked) for size in (1, 64))
    assert alone == together


def test_progress_counts_word_positions(masked):
    seen = []
    asked = word_positions([*sentences(100), "ka qu"])
    masked.candidates(asked, seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == len(asked) - 1  # all but the one that is not its business


def test_long_texts_are_read_through_a_window(masked):
    """5,000 words and more, where the model can read 64 pieces: each word has the candidates of the marker near it."""
    generator = random.Random(3)
    parts = {marker: [language.sentence(generator, marker, words=8) for _ in range(250)] for marker in language.MARKERS}
    asked = word_positions([" ".join(sentence for part in parts.values() for sentence in part)])
    assert len(asked) == 6000
    for i, marker in enumerate(language.MARKERS):
        inside = asked[2000 * i + 40 : 2000 * (i + 1) - 40 : 37]
        assert masked.candidates(inside) == [tuple(language.WORDS[marker])] * len(inside)
    ends = [*asked[:5], *asked[-5:]]
    assert masked.candidates(ends) == [tuple(language.WORDS["mi"])] * 5 + [tuple(language.WORDS["zo"])] * 5


def test_windows(tokenizer):
    text = " ".join(language.WORDS["mi"])
    asked = word_positions([text])
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    for i, ((part, (at,)), _) in enumerate(PromptEncoder(tokenizer, 5)(asked)):
        begin = ids.index(part[0])
        assert list(part) == ids[begin : begin + 5]
        assert begin + at == i
        assert at == 2 or begin in (0, len(ids) - 5)  # in the middle, but for the ends
    assert [prompt.masked for prompt, _ in PromptEncoder(tokenizer, 15)(asked)] == [(i,) for i in range(15)]
    assert all(len(prompt.ids) == 15 for prompt, _ in PromptEncoder(tokenizer, 100)(asked))


def test_a_length_may_be_asked_for(model, tokenizer):
    assert MaskedModel(model, tokenizer)._encode.window == (64 - 3) // 2
    assert MaskedModel(model, tokenizer, max_length=13)._encode.window == 5
    with pytest.raises(UnsupportedModelError, match="length of 4"):
        MaskedModel(model, tokenizer, max_length=4)


def test_the_model_is_given_the_masked_and_the_whole_sentence(tokenizer):
    text = "mi colorb ka animala"
    asked = PromptEncoder(tokenizer, 30)(word_positions([text]))
    inputs, (rows, columns) = PromptTemplate(tokenizer, "").inputs([each.prompt for each in asked])
    pairs = [("mi [MASK] ka animala", text), ("mi colorb ka [MASK]", text)]
    shown = tokenizer(pairs, return_token_type_ids=True)
    assert {name: values.tolist() for name, values in inputs.items()} == dict(shown)
    assert (rows.tolist(), columns.tolist()) == ([0, 1], [2, 4])


def test_several_masks_are_spread_over_the_text(tokenizer):
    text = " ".join(language.WORDS["mi"][:10])
    asked = PromptEncoder(tokenizer, 30, masks=3)(word_positions([text, text]))
    assert [each.prompt.masked[each.number] for each in asked] == [*range(10), *range(10)]
    groups = {each.prompt.masked for each in asked}
    assert groups == {(0, 4, 8), (1, 5, 9), (2, 6), (3, 7)}
    windowed = PromptEncoder(tokenizer, 5, masks=3)(word_positions([text]))
    assert {len(each.prompt.masked) for each in windowed} == {1}


def test_several_masks_in_a_prompt_are_filled_alike(model, masked, tokenizer):
    """In this language a word does not depend on the others, so its candidates must be those of a mask of its own."""
    asked = word_positions(sentences(60))
    together = MaskedModel(model, tokenizer, masks=4)
    assert together.candidates(asked) == masked.candidates(asked)
    assert len(prompts(together, sentences(60))) < len(prompts(masked, sentences(60))) / 2
    assert together.description.endswith("(4 masks at a time)")
    for batch in BATCHES:
        each = MaskedModel(untrained(tokenizer), tokenizer, masks=4, batch_size=batch).candidates(asked)
        assert each == MaskedModel(untrained(tokenizer), tokenizer, masks=4, batch_size=7).candidates(asked)
    with pytest.raises(RecipeError, match=r"masks .*0"):
        MaskedModel(model, tokenizer, masks=0)


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
FAMILIES = {
    "bert": (BertConfig, BertForMaskedLM, SMALL),
    "roberta": (RobertaConfig, RobertaForMaskedLM, SMALL | {"max_position_embeddings": 66}),
    "distilbert": (DistilBertConfig, DistilBertForMaskedLM, {"dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4}),
    "albert": (AlbertConfig, AlbertForMaskedLM, SMALL | {"embedding_size": 16}),
    "electra": (ElectraConfig, ElectraForMaskedLM, SMALL | {"embedding_size": 16}),
    "mobilebert": (
        MobileBertConfig,
        MobileBertForMaskedLM,
        SMALL | {"embedding_size": 16, "true_hidden_size": 16, "intra_bottleneck_size": 16},
    ),
}


@pytest.mark.parametrize("masks", [1, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_those_of_the_whole_model(tokenizer, family, masks):
    config, kind, settings = FAMILIES[family]
    torch.manual_seed(0)
    each = kind(config(vocab_size=len(tokenizer), **settings)).eval()
    source = MaskedModel(each, tokenizer, masks=masks)
    for batch in source._batches(prompts(source, sentences(5))):
        inputs, (rows, columns) = source._template.inputs(batch)
        with torch.inference_mode():
            expected = each(**inputs).logits[rows, columns]
        torch.testing.assert_close(source._scores(batch), expected)
    assert not each.base_model._forward_hooks  # the model is given back as it was


def test_roberta_counts_positions_from_behind_the_padding(tokenizer):
    config, kind, settings = FAMILIES["roberta"]
    each = kind(config(vocab_size=len(tokenizer), **settings | {"max_position_embeddings": 32}))
    source = MaskedModel(each, tokenizer)
    assert source._encode.window == (32 - 2 - 3) // 2
    long = " ".join(language.WORDS["mi"] * 3)
    assert None not in source.candidates(word_positions([long])[:3])


@pytest.mark.parametrize("trim", [True, False])
def test_byte_level_tokenizers(trim):
    """Pieces carry the space before them; whether the offsets count it differs between models."""
    words = [f"Ġ{chr(97 + i)}{chr(98 + i)}" for i in range(20)]
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *words, "Ġ", *(chr(97 + i) for i in range(26))]
    inner = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True, trim_offsets=trim)
    inner.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=trim)
    inner.decoder = decoders.ByteLevel()
    special = {"pad": "<pad>", "cls": "<s>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
    names = {f"{name}_token": token for name, token in special.items()}
    known = PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=64, **names)
    config, kind, settings = FAMILIES["roberta"]
    source = MaskedModel(kind(config(vocab_size=len(pieces), **settings)), known)
    text = "ab cd, xyz 😀 de"
    found = source.candidates(
        [WordPosition(text, 0, 2), WordPosition(text, 3, 5), WordPosition(text, 7, 10), WordPosition(text, 13, 15)]
    )
    assert [words is None for words in found] == [False, False, True, False]
    assert all(word.isalpha() and len(word) == 2 for words in found if words for word in words)


def test_a_folder_gives_the_same_answers(masked, masked_folder):
    loaded = MaskedModel.load(str(masked_folder), batch_size=7)
    assert loaded.candidates(word_positions(sentences(10))) == masked.candidates(word_positions(sentences(10)))
    assert loaded.description == f"the 15 best words of the masked-language model {masked_folder.name}"
    assert loaded.fingerprint == MaskedModel.load(str(masked_folder)).fingerprint


def test_the_fingerprint_is_of_everything_that_could_change_an_answer(model, tokenizer):
    same = {MaskedModel(model, tokenizer, name, batch_size=b).fingerprint for name, b in (("a", 1), ("b", 64))}
    other = copy.deepcopy(model)
    other.cls.predictions.bias.data[9] += 1e-3
    different = {
        MaskedModel(other, tokenizer).fingerprint,
        MaskedModel(model, tokenizer, count=14).fingerprint,
        MaskedModel(model, tokenizer, max_length=20).fingerprint,
    }
    assert len(same) == 1
    assert len(same | different) == 4


def test_a_classifier_is_refused(tmp_path):
    """transformers would give it a head of random numbers, and the augmentation would be noise."""
    with pytest.raises(UnsupportedModelError, match=r"cls\..*--embeddings"):
        MaskedModel.load(tiny.save(tmp_path))


def test_what_cannot_be_used(tmp_path, masked_folder, model, tokenizer):
    with pytest.raises(HubError, match=re.escape(str(tmp_path / "missing"))):
        MaskedModel.load(str(tmp_path / "missing"))
    with pytest.raises(RecipeError, match="cuda:99"):
        MaskedModel.load(str(masked_folder), device="cuda:99")
    maskless = copy.deepcopy(tokenizer)
    maskless.mask_token = None
    with pytest.raises(UnsupportedModelError, match="mask token"):
        MaskedModel(model, maskless)
    broken = copy.deepcopy(model)
    broken.cls.predictions.bias.data[3] = torch.nan
    with pytest.raises(UnsupportedModelError, match="not finite"):
        MaskedModel(broken, tokenizer).candidates(word_positions(sentences(1)))


def test_a_damaged_file_is_an_error_of_ours(masked_folder, tmp_path):
    for file in masked_folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(HubError, match=re.escape(str(tmp_path))):
        MaskedModel.load(str(tmp_path))


def test_a_folder_without_a_tokenizer(masked_folder, tmp_path):
    """transformers would make up one that knows no words, and nothing would be replaced."""
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((masked_folder / name).read_bytes())
    with pytest.raises(UnsupportedModelError, match=r"tokenizer\.json"):
        MaskedModel.load(str(tmp_path))
