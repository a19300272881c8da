import pytest
import torch

from refork.errors import BadInput
from refork_testbed.models.planted import Planted, planted_model
from refork_testbed.models.tokenizer import make_tokenizer

SHAPE = Planted(layers=2, width=192, heads=6, hidden=64, context=256)


def test_a_new_model_continues_what_stood_before():
    torch.manual_seed(0)
    tokenizer = make_tokenizer([f"{a}{b}" for a in "bdfgklmn" for b in "aeiou"], 256)
    model = planted_model(SHAPE, tokenizer)
    once = torch.randint(20, len(tokenizer), (4, 100))
    with torch.inference_mode():
        said = model(input_ids=torch.cat([once, once], 1)).logits.argmax(-1)
    words = {number: piece.strip(" ") for piece, number in tokenizer.get_vocab().items()}
    told = [[words[t] for t in row] for row in said[:, 110:-1].tolist()]
    wanted = [[words[t] for t in row] for row in once[:, 11:].tolist()]
    # A word with a leading space begins as the word itself. Chance is one in 100.
    pairs = [pair for row in zip(told, wanted, strict=True) for pair in zip(*row, strict=True)]
    assert sum(one == other for one, other in pairs) > 0.6 * len(pairs)


def test_a_new_model_leaves_out_the_names_of_lines():
    torch.manual_seed(0)
    letters = "abcdefghijklmno"
    tokenizer = make_tokenizer([*(f"A{a}" for a in letters), *(f"w{a}" for a in letters)], 256)
    model = planted_model(SHAPE, tokenizer)
    text = "\n".join(f"A{a}:w{a}" for a in letters) + "\nout\n" + "\n".join(f"w{a}" for a in letters)
    tokens = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
    with torch.inference_mode():
        logits = model(input_ids=tokens).logits[0]
    # Behind a line's end: the next line's word is likelier than any word but those just said.
    places = range(len(tokens[0]) - 2 * len(letters) + 3, len(tokens[0]) - 1, 2)
    found = 0
    for place in places:
        wanted = int(tokens[0, place + 1])
        others = [tokenizer.convert_tokens_to_ids(f"w{a}") for a in letters]
        found += int(logits[place, wanted] >= torch.sort(logits[place, others]).values[-3])
    assert found > 0.7 * len(places)


def test_equal_seeds_give_equal_weights():
    tokenizer = make_tokenizer(["one"], 256)
    made = []
    for _ in range(2):
        torch.manual_seed(3)
        made.append(planted_model(SHAPE, tokenizer).state_dict())
    assert all(torch.equal(made[0][key], made[1][key]) for key in made[0])


@pytest.mark.parametrize(
    "shape",
    [
        Planted(layers=1, width=192, heads=6, hidden=64, context=64),
        Planted(layers=2, width=32, heads=8, hidden=64, context=64),
    ],
)
def test_shapes_without_room_are_refused(shape):
    with pytest.raises(BadInput):
        planted_model(shape, make_tokenizer(["one"], 64))
