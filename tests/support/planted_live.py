"""A live decoder that says what it is told to, and a tiny policy with a chat template to go with it."""

import itertools
import threading
import time

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from refork.decoding.live import StepOutput
from refork.policies.local import LocalPolicy
from support.models import make_tokenizer

TEMPLATE = (
    "{% if tools %}tools: {{ tools | tojson }}\n{% endif %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}\n"
    "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)


def chat_policy(context=640, seed=0):
    """Two blocks of width 32, a byte tokenizer with a chat template that shows tools."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=258,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=context,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=None,
    )
    tokenizer = make_tokenizer()
    tokenizer.chat_template = TEMPLATE
    return LocalPolicy(LlamaForCausalLM(config).eval(), tokenizer, name="tiny")


class PlantedLive:
    """Says ``script(ask)`` token by token; an exception in the script's place ends that one, or breaks it.

    ``paces``: a semaphore that every step takes once, where a test steps by hand.
    """

    def __init__(self, script, width=64, paces=None):
        self.script, self.width, self.paces = script, width, paces
        self.open, self.queue, self.tickets = {}, [], itertools.count()
        self.cancelled, self.steps, self.broken = [], 0, None
        self.most = 0

    waiting = property(lambda self: len(self.queue))
    running = property(lambda self: len(self.open))
    idle = property(lambda self: not (self.queue or self.open))
    bytes = property(lambda self: 64 * len(self.open))

    def submit(self, ask):
        ticket = next(self.tickets)
        self.queue.append((ticket, ask))
        return ticket

    def cancel(self, ticket):
        self.cancelled.append(ticket)
        self.queue = [item for item in self.queue if item[0] != ticket]
        self.open.pop(ticket, None)

    def clear(self):
        self.queue, self.open = [], {}

    def step(self):
        # A model computes without Python's lock; so must this, or the event loop would starve.
        time.sleep(0.0003)
        if self.paces is not None:
            self.paces.acquire()
        if self.broken is not None:
            raise self.broken
        self.steps += 1
        while self.queue and len(self.open) < self.width:
            ticket, ask = self.queue.pop(0)
            self.open[ticket] = (iter(self.script(ask)), ask.settings.max_tokens, [0])
        self.most = max(self.most, len(self.open))
        return [self.say(ticket, *state) for ticket, state in list(self.open.items())]

    def say(self, ticket, words, limit, said):
        none = np.zeros(0, dtype=np.float32)
        try:
            token = next(words)
        except StopIteration:
            token = 0
        except ValueError as error:
            del self.open[ticket]
            return StepOutput(
                ticket, np.zeros(0, dtype=np.int32), none, none, finish="error", error=str(error)
            )
        said[0] += 1
        finish = "stop" if token == 0 else "length" if said[0] == limit else None
        if finish:
            del self.open[ticket]
        nats = np.array([-1.0], dtype=np.float32)
        return StepOutput(ticket, np.array([token], dtype=np.int32), nats, nats, finish=finish)


def saying(policy, text):
    """A script: every answer is this text."""
    tokens = policy.encode(text).tolist()
    return lambda ask: tokens


def paces():
    """A semaphore for steps by hand."""
    return threading.Semaphore(0)
