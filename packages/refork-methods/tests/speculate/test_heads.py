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


@pytest.mark.parametrize("modes", [2, 3])
def test_only_a_sequential_head_can_follow_one_of_several_modes(modes):
    """M equally likely first tokens, each with one successor: a parallel drafter accepts 1 / M at best."""
    successors = torch.arange(modes) + modes
    size = 2 * modes
    target = torch.nn.functional.one_hot(successors, size).double()
    generator = torch.Generator().manual_seed(0)
    parallel = torch.softmax(torch.randn(500, size, generator=generator).double() * 4, -1)
    overlap = torch.minimum(target[None], parallel[:, None]).sum(-1).mean(-1)
    assert float(overlap.max()) <= 1 / modes + 1e-12
    on_successors = target.mean(0)
    assert float(torch.minimum(target, on_successors).sum(-1).mean()) == pytest.approx(1 / modes)

    made = SequentialHead("markov", modes, size, WIDTH).double()
    with torch.no_grad():
        made.markov_w1.weight.zero_()
        made.markov_w1.weight[:modes] = torch.eye(modes).double()
        made.markov_w2.weight.zero_()
        made.markov_w2.weight[successors, torch.arange(modes)] = 40.0
    bias, _ = made.step(1, torch.arange(modes), torch.zeros(modes, WIDTH).double())
    drafted = torch.softmax(bias.detach(), -1)
    assert float(torch.minimum(target, drafted).sum(-1).min()) > 1 - 1e-12
