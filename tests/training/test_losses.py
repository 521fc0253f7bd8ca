"""The losses against recorded values of the released code and against loops over single elements."""

from pathlib import Path

import numpy as np
import pytest
import torch

from ternarybert.training.losses import (
    layer_map,
    loss_attention,
    loss_hidden,
    loss_labels,
    loss_labels_spans,
    loss_maps,
    loss_pred,
    loss_pred_spans,
    soft_cross_entropy,
    without_padded_keys,
)

GOLDEN = np.load(Path(__file__).parent.parent / "golden" / "released.npz")
MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]])


def golden(name: str) -> torch.Tensor:
    return torch.from_numpy(GOLDEN[name])


def test_soft_cross_entropy():
    student, teacher = golden("sce/student"), golden("sce/teacher")
    torch.testing.assert_close(soft_cross_entropy(student, teacher, "element"), golden("sce/mean_over_all"))
    torch.testing.assert_close(soft_cross_entropy(student, teacher), golden("sce/batchmean"))
    torch.testing.assert_close(loss_pred(student, teacher), golden("sce/batchmean"))


def test_soft_cross_entropy_is_least_where_student_and_teacher_agree():
    teacher = golden("sce/teacher")
    entropy = torch.distributions.Categorical(logits=teacher).entropy().mean()
    torch.testing.assert_close(soft_cross_entropy(teacher, teacher), entropy)
    assert soft_cross_entropy(golden("sce/student"), teacher) > entropy


def test_attention_as_released():
    """Recorded with the mask added to the scores; up to -100 counts as masked there."""
    student, teacher = golden("att/student"), golden("att/teacher")
    keys = (student[:, 0, 0] > -100).long()
    ours = loss_attention([without_padded_keys(student, keys)], [without_padded_keys(teacher, keys)], None)
    torch.testing.assert_close(ours, golden("att/mse"))


def test_hidden_states_by_hand():
    torch.manual_seed(0)
    student, teacher = torch.randn(2, 3, 3, 4, 5).double()  # 3 layers of (B, n, d) = (3, 4, 5)
    by_hand = 0.0
    for s, t in zip(student, teacher, strict=True):
        for row, mask in enumerate(MASK):
            errors = [float((s[row, i] - t[row, i]).square().mean()) for i in range(4) if mask[i]]
            by_hand += sum(errors) / len(errors) / len(MASK)
    assert float(loss_hidden(list(student), list(teacher), MASK)) == pytest.approx(by_hand)
    plain = sum(torch.nn.functional.mse_loss(s, t) for s, t in zip(student, teacher, strict=True))
    assert float(loss_hidden(list(student), list(teacher), None)) == pytest.approx(float(plain))


def test_attention_by_hand():
    torch.manual_seed(1)
    student, teacher = torch.randn(2, 2, 3, 2, 4, 4).double()  # 2 layers of (B, N_H, n, n) = (3, 2, 4, 4)
    by_hand = 0.0
    for s, t in zip(student, teacher, strict=True):
        for row, mask in enumerate(MASK):
            real = [i for i in range(4) if mask[i]]
            errors = [float((s[row, h, i, j] - t[row, h, i, j]) ** 2) for h in range(2) for i in real for j in real]
            by_hand += sum(errors) / len(errors) / len(MASK)
    assert float(loss_attention(list(student), list(teacher), MASK)) == pytest.approx(by_hand)


def test_attention_maps_by_hand():
    """KL(teacher ‖ student) of the probabilities of real keys; padded keys may hold anything."""
    torch.manual_seed(4)
    student, teacher = torch.randn(2, 2, 3, 2, 4, 4).double()
    total, all_queries = 0.0, 0.0
    for s, t in zip(student, teacher, strict=True):
        for row, mask in enumerate(MASK):
            real = [i for i in range(4) if mask[i]]
            each = []
            for i in range(4):
                for h in range(2):
                    p, q = (scores[row, h, i, real].softmax(0) for scores in (t, s))
                    each.append(float((p * (p / q).log()).sum()))
            total += sum(each[2 * i] + each[2 * i + 1] for i in real) / (2 * len(real)) / len(MASK)
            all_queries += sum(each) / len(each) / len(MASK)
    for scores in (student, teacher):
        scores.masked_fill_((MASK == 0)[None, :, None, None, :], 1e4)
    assert float(loss_maps(list(student), list(teacher), MASK, MASK)) == pytest.approx(total)
    assert float(loss_maps(list(student), list(teacher), MASK, None)) == pytest.approx(all_queries)
    assert float(loss_maps(list(teacher), list(teacher), MASK, MASK)) == 0.0


def test_the_gradient_of_attention_maps_is_the_difference_of_the_probabilities():
    torch.manual_seed(5)
    student, teacher = torch.randn(2, 3, 2, 4, 4).double()
    student.requires_grad_()
    loss_maps([student], [teacher], MASK, MASK).backward()
    padded = (MASK == 0)[:, None, None, :]
    p, q = (scores.detach().masked_fill(padded, -torch.inf).softmax(-1) for scores in (teacher, student))
    share = (MASK / MASK.sum(1, keepdim=True)).double()[:, None, :, None] / (2 * len(MASK))
    torch.testing.assert_close(student.grad, (q - p) * share)


def test_relative_errors_do_not_depend_on_the_scale_of_a_layer():
    torch.manual_seed(6)
    hidden, scores = torch.randn(2, 3, 3, 4, 5), torch.randn(2, 2, 3, 2, 4, 4)
    variances = [0.5, 2.0, 3.0]
    by_hand = sum(
        float(loss_hidden([s], [t], MASK)) / variance for s, t, variance in zip(*hidden, variances, strict=True)
    )
    assert float(loss_hidden(*hidden, MASK, variances)) == pytest.approx(by_hand)
    scaled = [[each * 8 for each in layers] for layers in hidden]
    assert loss_hidden(*scaled, MASK, [64 * v for v in variances]) == loss_hidden(*hidden, MASK, variances)
    twice = [[2 * each for each in layers] for layers in scores]
    assert loss_attention(*twice, MASK, [4.0, 8.0]) == loss_attention(*scores, MASK, [1.0, 2.0])


def test_padding_does_not_count():
    torch.manual_seed(2)
    hidden, scores = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 2, 4, 4)
    before = loss_hidden([hidden[0]], [hidden[1]], MASK), loss_attention([scores[0]], [scores[1]], MASK)
    hidden[:, MASK == 0] = 99.0
    scores[:, (MASK == 0)[:, None, None, :].expand(3, 2, 4, 4)] = 99.0
    scores[:, (MASK == 0)[:, None, :, None].expand(3, 2, 4, 4)] = -99.0
    torch.testing.assert_close(loss_hidden([hidden[0]], [hidden[1]], MASK), before[0])
    torch.testing.assert_close(loss_attention([scores[0]], [scores[1]], MASK), before[1])


def test_a_batchs_loss_is_the_mean_of_its_examples():
    torch.manual_seed(3)
    hidden, scores = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 2, 4, 4)
    rows = [slice(i, i + 1) for i in range(3)]
    singly = torch.stack([loss_hidden([hidden[0, r]], [hidden[1, r]], MASK[r]) for r in rows]).mean()
    torch.testing.assert_close(loss_hidden([hidden[0]], [hidden[1]], MASK), singly)
    singly = torch.stack([loss_attention([scores[0, r]], [scores[1, r]], MASK[r]) for r in rows]).mean()
    torch.testing.assert_close(loss_attention([scores[0]], [scores[1]], MASK), singly)


def test_regression_and_labels():
    student, teacher = torch.tensor([[1.0], [3.0]]), torch.tensor([[2.0], [1.0]])
    assert float(loss_pred(student, teacher, regression=True)) == 2.5
    assert float(loss_labels(student, torch.tensor([1.0, 1.0]), regression=True)) == 2.0
    assert float(loss_labels(torch.zeros(3, 4), torch.tensor([0, 1, 3]))) == pytest.approx(np.log(4))


def test_layer_map():
    assert layer_map(6, 12) == [2, 4, 6, 8, 10, 12]
    assert layer_map(4, 4) == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="do not spread evenly"):
        layer_map(5, 12)


def spans_by_hand(student, teacher):
    """SCE(start) + SCE(end) of every row of MASK, from its real tokens only."""
    rows = []
    for row, mask in enumerate(MASK):
        n, total = int(mask.sum()), 0.0
        for side in range(2):
            p = np.exp(teacher[row, side, :n].numpy())
            q = np.exp(student[row, side, :n].numpy())
            total -= float((p / p.sum() * np.log(q / q.sum())).sum())
        rows.append(total)
    return np.array(rows)


def test_l_pred_of_spans_by_hand():
    """A mean over examples, not over tokens; what stands in the padding does not matter."""
    student, teacher = torch.randn(2, 3, 2, 4).double()
    by_hand, lengths = spans_by_hand(student, teacher), MASK.sum(1).numpy()
    for padding in (0.0, 1e4, -1e4):
        padded = [x.masked_fill(~MASK.bool()[:, None, :], padding) for x in (student, teacher)]
        assert float(loss_pred_spans(*padded, MASK)) == pytest.approx(by_hand.mean(), rel=1e-6)
        assert float(loss_pred_spans(*padded, MASK, "element")) == pytest.approx((by_hand / lengths).mean(), rel=1e-6)


def test_l_pred_of_spans_as_released():
    """Without a mask: element means over examples and tokens, padding included, of start and of end."""
    student, teacher = torch.randn(2, 3, 2, 384)
    start, end = (soft_cross_entropy(student[:, side], teacher[:, side], "element") for side in range(2))
    torch.testing.assert_close(loss_pred_spans(student, teacher, None, "element"), start + end)
    torch.testing.assert_close(loss_pred_spans(student, teacher, None), 384 * (start + end))


def test_padding_gets_no_gradient():
    logits = torch.randn(3, 2, 4, requires_grad=True)
    labels = torch.tensor([[1, 2], [0, 0], [3, 3]])
    (loss_pred_spans(logits, torch.randn(3, 2, 4), MASK) + loss_labels_spans(logits, labels, MASK)).backward()
    real = MASK.bool()[:, None, :].expand(3, 2, 4)
    assert not logits.grad[~real].any()
    assert torch.isfinite(logits.grad).all()


def test_labels_of_spans_by_hand():
    """BERT's mean of two cross-entropies over the rows with a label; none at all is no loss, and not 0/0."""
    logits, labels = torch.randn(3, 2, 4).double(), torch.tensor([[1, 2], [0, 0], [-1, -1]])
    by_hand = []
    for row in range(2):
        shares = [logits[row, side, : MASK[row].sum()].softmax(0) for side in range(2)]
        by_hand.append(-sum(float(shares[side][labels[row, side]].log()) for side in range(2)) / 2)
    assert float(loss_labels_spans(logits, labels, MASK)) == pytest.approx(np.mean(by_hand), rel=1e-6)
    assert float(loss_labels_spans(logits, torch.full((3, 2), -1), MASK)) == 0.0
