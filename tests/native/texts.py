"""Texts for tokenizers: sentences of many languages, and random characters of all of Unicode; a tokenizer for them."""

import sys
import unicodedata

from tokenizers import Tokenizer
from tokenizers.models import WordPiece

SENTENCES = [
    'The quick brown fox jumps over the lazy dog; it\'s 3.14 — "really" (yes!).',
    "Æsop's Fables: ŒUVRE, naïve café, Ångström, İstanbul, ẞtraße, ŸMIR, ǅ",
    "東京都に住んでいます。日本語のテキスト、カタカナとひらがな。",
    "我喜欢读书，你呢？中文English混合123文本。",
    "한국어 문장입니다. 각 음절은 분해됩니다 ㄱㄴㄷ",
    "مرحبا بالعالم، كَيْفَ حَالُكَ؟ ١٢٣ ﷺ",
    "नमस्ते दुनिया, क्षत्रिय की कहानी। १२३",
    "สวัสดีชาวโลก น้ำใจ ก็ดี",
    "Привет, мир! Ёлка й Й съешь ещё этих мягких булок",
    "שָׁלוֹם עוֹלָם — ״ציטוט״",
    "Γειά σου Κόσμε, ΆΈΉΊΌΎΏ ς Σ",
    "Tiếng Việt: Nguyễn Ái Quốc, đường phố",
    "emoji 👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🙂 flags 🇩🇪🇫🇷 1️⃣",
    "combining é ñ ộ q̣̇ q̣̇ Z̴̧̛̺͚̉a̵͓̓l̶̰͝g̷̈́ͅo̶",
    "tabs\tnewlines\r\nform\x0cfeed\x0bvertical\x85next\xa0nbsp\u2028line\u3000wide\ufeffbom",
    "controls \x00\x01\x1f\x7f\x80\u200b\u200d\u2060\ufffd\u00ad\ue000\U000f0000 end",
    "[CLS] hello [SEP] [MASK] [mask] [UNK] [PAD]x[SEP]y [ SEP ]",
    "a" * 100 + " " + "b" * 101 + " " + "é" * 101,
    "punctuation: !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ ¡¿«»…‰‱′″‹›※⁂€™℠①½",
    "https://example.org/path?query=1&x=[2]#frag user@mail.com C++20 #tag @me 50% $3.99 £5",
]

_BLOCKS = [
    (0x20, 0x7F), (0x20, 0x7F), (0x00, 0x100), (0xC0, 0x250), (0x250, 0x600), (0x300, 0x370), (0x590, 0x780),
    (0x900, 0x1200), (0x1E00, 0x2000), (0x2000, 0x2C00), (0x3000, 0x3400), (0x4E00, 0xA000), (0xAC00, 0xD7A4),
    (0xF900, 0x10000), (0x1D100, 0x1D200), (0x1F300, 0x1FA00), (0x20000, 0x2FA20), (0x0, sys.maxunicode + 1),
]  # fmt: skip


def random_text(source):
    """Up to forty characters from a few blocks, with blanks and special tokens now and then."""
    blocks = source.choices(_BLOCKS, k=source.randrange(1, 4))
    chars = []
    for _ in range(source.randrange(41)):
        if source.random() < 0.12:
            chars.append(source.choice([" ", "  ", "\t", "\n", "[SEP]", "[MASK]", "-", ".", "\u0301", "\u0323"]))
        code = source.randrange(*source.choice(blocks))
        chars.append(chr(code if not 0xD800 <= code < 0xE000 else 0x41))
    return "".join(chars)


def real_texts(source, count):
    """Pieces of sentences, put together anew."""
    words = [word for sentence in SENTENCES for word in sentence.split(" ")]
    yield from SENTENCES[: min(count, len(SENTENCES))]
    for _ in range(count - len(SENTENCES)):
        yield source.choice([" ", " ", ""]).join(source.choices(words, k=source.randrange(1, 14)))


def rich_tokenizer(folder):
    """The vocabulary knows every letter and many pieces, so that tokens show what happened to each character."""
    path = folder / "tokenizer.json"
    letters = {c for c in map(chr, range(0x20, 0x3000)) if unicodedata.category(c)[0] in "LMNPS"}
    letters |= {unicodedata.normalize("NFD", c) for c in letters} | set("日本語中文字한국어ﷺ🙂😀")
    letters |= {c for word in letters for c in word}
    pieces = {word for sentence in SENTENCES for word in sentence.lower().split()[::2]}
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(letters | pieces)]
    tokens += [f"##{token}" for token in tokens[5:]]
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.model = WordPiece({token: i for i, token in enumerate(dict.fromkeys(tokens))}, unk_token="[UNK]")
    tokenizer.save(str(path))
