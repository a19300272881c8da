"""``POST /tokenize`` and ``/detokenize``, as vLLM has them: tokens of a text or a conversation, and back."""

from __future__ import annotations

from refork.serve.api import Detokenized, DetokenizeRequest, Tokenized, TokenizeRequest
from refork.serve.asking import tokens_of
from refork.serve.refusal import BadParameter
from refork.serve.served import Asked
from refork.serve.service import Service


async def tokenize(service: Service, body: TokenizeRequest) -> Tokenized:
    """The tokens that the model would read: of a text, or of messages in its chat template.

    Raises: BadInput.
    """
    model = tokens_of(service.model(body.model), "tokens", "model")
    if (body.prompt is None) == (body.messages is None):
        raise BadParameter("prompt", "prompt: a text or messages, one of the two")
    if body.messages is None:
        asked = Asked(text=body.prompt)
    else:
        if not body.add_generation_prompt:
            raise BadParameter(
                "add_generation_prompt", "add_generation_prompt: a conversation is answered here"
            )
        tools = tuple(tool.model_dump(exclude_unset=True) for tool in body.tools)
        asked = Asked(tuple(one.model_dump(exclude_unset=True) for one in body.messages), tools=tools)
    tokens = (await model.read(asked, begun=body.add_special_tokens)).tolist()
    spelled = [model.spell(token) for token in tokens] if body.return_token_strs else None
    return Tokenized(count=len(tokens), max_model_len=model.context, tokens=tokens, token_strs=spelled)


def detokenize(service: Service, body: DetokenizeRequest) -> Detokenized:
    """The text of tokens, without special ones.

    Raises: BadInput.
    """
    model = tokens_of(service.model(body.model), "tokens", "model")
    for token in body.tokens:
        if not model.spell(token):
            raise BadParameter("tokens", f"tokens: the model has no token {token}")
    return Detokenized(prompt=model.pieces(body.tokens)[0])
