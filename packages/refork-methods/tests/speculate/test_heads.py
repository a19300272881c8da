import pytest
import torch

from refork_methods.speculate.heads import SequentialHead

RANK, SIZE, WIDTH, ROWS, BLOCK = 3, 9, 5, 4, 6


def head(kind):
    torch.manual_seed(0)
    made = SequentialHead(kind, RANK, SIZE, WIDTH)
    with torch.no_grad():
        for part in made.parameters():
            part.normal_()
    previous = torch.randint(SIZE, (ROWS, BLOCK))
    return made, previous, torch.randn(ROWS, BLOCK, WIDTH)


@pytest.mark.parametrize("kind", ["markov", "gated", "rnn"])
def test_steps_and_whole_blocks_give_the_same_bias(kind):
    made, previous, hidden = head(kind)
    whole = made.bias(made.factors(previous, hidden))
    state = None
    for k in range(BLOCK):
        bias, state = made.step(k, previous[:, k], hidden[:, k], state)
        assert torch.allclose(bias, whole[:, k], atol=1e-5)


def test_markov_is_a_table_of_low_rank():
    made, previous, hidden = head("markov")
    table = made.markov_w1.weight @ made.markov_w2.weight.T
    assert torch.linalg.matrix_rank(table) == RANK
    assert torch.allclose(made.bias(made.factors(previous, hidden)), table[previous], atol=1e-5)


def test_gated_formula():
    made, previous, hidden = head("gated")
    embedded = made.markov_w1.weight[previous]
    gate = torch.sigmoid(made.gate_proj(torch.cat([hidden, embedded], -1)))
    wanted = (gate * embedded) @ made.markov_w2.weight.T
    assert torch.allclose(made.bias(made.factors(previous, hidden)), wanted, atol=1e-5)


def test_rnn_formula():
    made, previous, hidden = head("rnn")
    state = torch.zeros(ROWS, RANK)
    for k in range(BLOCK):
        z = torch.cat([state, made.markov_w1.weight[previous[:, k]], hidden[:, k]], -1)
        gate, new, out = (z @ made.joint_proj.weight.T + made.joint_proj.bias).split(RANK, -1)
        state = torch.sigmoid(gate) * state + (1 - torch.sigmoid(gate)) * torch.tanh(new)
        wanted = torch.tanh(out) @ made.markov_w2.weight.T
        assert torch.allclose(made.bias(made.factors(previous, hidden))[:, k], wanted, atol=1e-5)


def test_rnn_forgets_at_a_new_block():
    made, previous, hidden = head("rnn")
    stale = torch.randn(ROWS, RANK)
    assert torch.equal(
        made.step(0, previous[:, 0], hidden[:, 0], stale)[0],
        made.step(0, previous[:, 0], hidden[:, 0], None)[0],
    )


def test_rnn_reads_the_whole_past_and_nothing_else():
    made, previous, hidden = head("rnn")
    before = made.factors(previous, hidden)
    changed = previous.clone()
    changed[:, 2] = (changed[:, 2] + 1) % SIZE
    after = made.factors(changed, hidden)
    assert torch.equal(before[:, :2], after[:, :2])
    assert not torch.allclose(before[:, 2:], after[:, 2:])
