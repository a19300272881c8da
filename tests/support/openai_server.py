"""A small OpenAI-compatible server on loopback, for tests: honest, chat-only, or lying on request."""

import contextlib
import json
import threading
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from refork.policies.chat import Codec
from refork.types import token_array

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_codec():
    """A byte-level tokenizer with two special tokens and no merges."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {"<|im_start|>": 0, "<|im_end|>": 1} | {c: i + 2 for i, c in enumerate(letters)}
    inner = Tokenizer(models.BPE(vocab, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    made = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>")
    made.chat_template = CHATML
    return Codec(made)


CODEC = make_codec()
LETTERS = [int(i) for i in CODEC.encode("abcdefgh")]


def law(ids):
    """Log-probs [vocabulary] after a prefix: eight letters and the end, by the last token alone."""
    logits = np.full(CODEC.vocabulary, -30.0)
    logits[[*LETTERS, 1]] = np.random.default_rng(ids[-1]).normal(size=len(LETTERS) + 1) * 1.5
    return logits - np.log(np.exp(logits).sum())


def normal(logits):
    return logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())


def penalised(logits, settings, prompt, said):
    """Logits after the penalties, as vLLM reads them."""
    logits = logits.copy()
    r = settings.get("repetition_penalty", 1.0)
    for token in {*prompt, *said}:
        logits[token] = logits[token] / r if logits[token] > 0 else logits[token] * r
    for token in set(said):
        logits[token] -= settings.get("frequency_penalty", 0.0) * said.count(token)
        logits[token] -= settings.get("presence_penalty", 0.0)
    return logits


def filtered(logits, settings):
    """Log-probs of the distribution that a request's min-p, top-k and top-p leave, as vLLM reads them."""
    k, least, most = settings.get("top_k", 0), settings.get("min_p", 0.0), settings.get("top_p", 1.0)
    logits = normal(logits)
    if least:
        logits = normal(np.where(logits >= logits.max() + np.log(least), logits, -np.inf))
    if 0 < k < len(logits):
        logits = normal(np.where(logits >= np.sort(logits)[-k], logits, -np.inf))
    if most < 1:
        order = np.argsort(-logits, kind="stable")
        before = np.cumsum(np.exp(logits[order])) - np.exp(logits[order])
        logits[order[before >= most]] = -np.inf
    return normal(logits)


letters_law = law  # a field of the script has the other name


@dataclass
class Script:
    """How the server behaves, and what it saw."""

    dialect: str | None = "vllm"
    chat: bool = True
    seeds: bool = True
    bits: int = 64
    biased: bool = True
    owner: str | None = None
    law: str = "t1"
    echo: bool = True
    tokenizer: bool = False
    strict: bool = False
    strict_chat: bool = False
    any_name: bool = True
    listed: list = field(
        default_factory=lambda: [{"id": name, "max_model_len": 512} for name in ("tiny", "m", "guard")]
    )
    defaults: dict = field(default_factory=dict)
    logits: object = letters_law
    flat_errors: bool = False
    lie: str | None = None
    key: str | None = None
    colours: int = 1 << 20
    reply: dict = field(default_factory=lambda: {"content": "blue", "finish": "stop"})
    fail: deque = field(default_factory=deque)
    fail_when: object = None
    limit_name: str = "max_tokens"
    free_temperature: bool = True
    seen: list = field(default_factory=list)
    active: int = 0
    most_active: int = 0
    release: threading.Event | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def bodies(self, path):
        return [body for at, body in self.seen if at.endswith(path)]


class Refusal(Exception):
    def __init__(self, status, message, headers=()):
        self.status, self.message, self.headers = status, message, dict(headers)


def generator(script, body):
    """The numbers that a request is drawn with: its own of its seed, or what the server happens to have."""
    seed = body.get("seed")
    if seed is not None and seed >= 1 << script.bits:
        raise Refusal(400, "seed: Input should be less than or equal to a number")
    if not script.seeds:
        # Other numbers at every call, the same in every run of a test.
        return np.random.default_rng(len(script.seen))
    return np.random.default_rng(seed)


def complete(script, body):  # noqa: C901
    """The choice and the usage of one completion."""
    prompt = body["prompt"]
    if script.dialect is None:
        raise Refusal(404, "no such route")
    if script.strict and "return_token_ids" in body:
        raise Refusal(400, "Unrecognized request argument supplied: return_token_ids")
    rng = generator(script, body)
    said, values, tops, finish = [], [], [], "length"
    bias = {int(k): v for k, v in (body.get("logit_bias") or {}).items()} if script.biased else {}
    for _ in range(body["max_tokens"]):
        bare = script.logits([*prompt, *said])
        bare = bare - np.log(np.exp(bare).sum())
        chosen = script.logits([*prompt, *said]).copy()
        for token, value in bias.items():
            chosen[token] += value
        chosen = penalised(chosen, script.defaults | body, prompt, said)
        if body["temperature"] == 0:
            token = int(np.argmax(chosen))
            sampled = np.where(np.arange(len(chosen)) == token, 0.0, -9999.0)
        else:
            sampled = chosen / body["temperature"]
            sampled = filtered(sampled, script.defaults | body)
            token = int(rng.choice(len(chosen), p=np.exp(sampled) / np.exp(sampled).sum()))
        shown = bare if script.law == "t1" else sampled
        best = np.argsort(-shown)[: body.get("logprobs") or 1]
        said.append(token)
        values.append(float(shown[token]))
        tops.append({int(i): float(shown[i]) for i in best})
        text = CODEC.decode(said)
        known = () if script.dialect == "llama" else body.get("stop_token_ids", ())
        if (token == 1 and not body.get("ignore_eos")) or token in known:
            finish = "stop"
        stop = next((s for s in body.get("stop") or () if s in text), None)
        if stop:
            finish = "stop"
        if finish == "stop":
            break
    choice = {"index": 0, "text": CODEC.decode(said), "finish_reason": finish}
    keeps = "no_stop_trim" if script.dialect == "sglang" else "include_stop_str_in_output"
    if stop and not body.get(keeps):
        choice["text"] = choice["text"][: choice["text"].index(stop)]
    if script.dialect in ("vllm", "sglang"):
        choice["stop_reason" if script.dialect == "vllm" else "matched_stop"] = stop or (
            said[-1] if finish == "stop" else None
        )
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(said), "total_tokens": 0}
    if body.get("echo"):
        if not script.echo:
            raise Refusal(400, "echo is not supported")
        echoed = [None, *(float(normal(script.logits(prompt[:i]))[prompt[i]]) for i in range(1, len(prompt)))]
        names = [f"token_id:{i}" for i in [*prompt, *said]]
        choice["logprobs"] = {"tokens": names, "token_logprobs": echoed + values, "top_logprobs": None}
        choice["token_ids"] = said
        return choice, usage
    names = [f"token_id:{i}" for i in said]
    named_tops = [{f"token_id:{i}": v for i, v in top.items()} for top in tops]
    choice["logprobs"] = {"tokens": names, "token_logprobs": values, "top_logprobs": named_tops}
    if script.dialect == "vllm":
        choice |= {"token_ids": said, "prompt_token_ids": prompt, "prompt_logprobs": None}
        # It writes what cannot be as -9999, since JSON has no infinity.
        choice["logprobs"]["text_offset"] = [0] * len(said)
        usage["prompt_tokens_details"] = None
    elif script.dialect == "sglang":
        choice |= {"token_ids": said, "prompt_token_ids": prompt, "hidden_states": None}
        words = [{CODEC.decode([i]): v for i, v in top.items()} for top in tops]
        choice["logprobs"] |= {"tokens": [CODEC.decode([i]) for i in said], "top_logprobs": words}
        choice["logprobs"]["text_offset"] = [-1] * len(said)
        usage |= {"prompt_tokens_details": None, "reasoning_tokens": 0}
    elif script.dialect == "llama":
        # llama.cpp's server leaves out what makes up the stop string.
        kept = len(said) - len(CODEC.encode(stop)) if stop else len(said)
        choice["logprobs"] = {
            "content": [
                {
                    "id": i,
                    "token": "?",
                    "logprob": v,
                    "top_logprobs": [{"id": j, "logprob": w} for j, w in t.items()],
                }
                for i, v, t in zip(said[:kept], values, tops, strict=False)
            ]
        } if kept else None  # fmt: skip
    elif script.dialect == "text":
        choice["logprobs"]["tokens"] = [CODEC.decode([i]) for i in said]
    return choice, usage


def lie(kind, choice, usage):  # noqa: C901
    """Spoil an answer."""
    block = choice["logprobs"]
    if kind == "short":
        block["token_logprobs"] = block["token_logprobs"][:-1]
    elif kind == "positive":
        block["token_logprobs"][0] = 0.7
    elif kind == "nan":
        block["token_logprobs"][0] = float("nan")
    elif kind == "none":
        block["token_logprobs"][0] = None
    elif kind == "ids":
        choice["token_ids"] = [*choice["token_ids"][:-1], choice["token_ids"][-1] + 1]
    elif kind == "text":
        choice["text"] = "something else"
    elif kind == "vocabulary":
        choice["token_ids"] = [10**6] * len(choice["token_ids"])
        block["tokens"] = [f"token_id:{10**6}"] * len(choice["token_ids"])
    elif kind == "prompt":
        choice["prompt_token_ids"] = [9, 9]
    elif kind == "count":
        usage["prompt_tokens"] += 1
    elif kind == "no_ids":
        choice.pop("token_ids", None)
        block["tokens"] = ["x" for _ in block["tokens"]]
    elif kind == "no_logprobs":
        choice["logprobs"] = None
    elif kind == "banned":
        choice["token_ids"][0] = LETTERS[0]
        block["tokens"][0] = f"token_id:{LETTERS[0]}"
        choice["text"] = CODEC.decode(choice["token_ids"])
    elif kind == "long":
        choice["token_ids"] = choice["token_ids"] * 50
        block["tokens"], block["token_logprobs"] = block["tokens"] * 50, block["token_logprobs"] * 50


def answer(script, path, body):  # noqa: C901
    """The JSON a request gets."""
    if path.endswith("/models"):
        if script.owner is None:
            return {"object": "list", "data": script.listed}
        return {"object": "list", "data": [item | {"owned_by": script.owner} for item in script.listed]}
    if not script.any_name and body.get("model", "tiny") != "tiny":
        raise Refusal(404, f"The model `{body['model']}` does not exist.")
    if path.endswith("/detokenize") and script.tokenizer:
        return {"prompt": CODEC.decode(body["tokens"])}
    if path.endswith("/apply-template") and script.dialect == "llama":
        return {"prompt": CODEC.raw(CODEC.render([], token_array([]), body["messages"]).tokens)}
    if path.endswith("/tokenize") and script.tokenizer and script.dialect == "llama":
        return {"tokens": [int(i) for i in CODEC.encode(body.get("content", ""))]}
    if path.endswith("/tokenize") and script.tokenizer:
        if "messages" in body:
            return {"tokens": [int(i) for i in CODEC.render([], [], body["messages"]).tokens]}
        return {"tokens": [int(i) for i in CODEC.encode(body["prompt"])]}
    if path.endswith("/chat/completions") and script.chat:
        if script.strict_chat and "top_k" in body:
            raise Refusal(400, "Unrecognized request arguments supplied: min_p, repeat_penalty, top_k")
        for name in ("max_tokens", "max_completion_tokens"):
            if name in body and name != script.limit_name:
                raise Refusal(400, f"Unsupported parameter: '{name}'. Use '{script.limit_name}' instead.")
        if not script.free_temperature and "temperature" in body:
            raise Refusal(400, "Unsupported value: 'temperature' does not support 1.0 with this model.")
        message = {"role": "assistant"} | {k: v for k, v in script.reply.items() if k != "finish"}
        rng = generator(script, body)
        if message.get("content") == "blue":
            message["content"] = f"colour {int(rng.integers(script.colours))}"
        choice = {"index": 0, "message": message, "finish_reason": script.reply["finish"]}
        return {"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}
    if path.endswith("/completions") and not path.endswith("/chat/completions"):
        choice, usage = complete(script, body)
        if script.lie is not None and not body.get("echo"):
            lie(script.lie, choice, usage)
        if script.lie == "echo" and body.get("echo"):
            choice["logprobs"]["token_logprobs"] = choice["logprobs"]["token_logprobs"][:2]
        return {"choices": [] if script.lie == "empty" else [choice], "usage": usage}
    raise Refusal(404, "no such route")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # one packet for an answer: two would wait for each other

    def do_GET(self):
        self.serve({})

    def do_POST(self):
        self.serve(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def serve(self, body):
        script = self.server.script
        with script.lock:
            script.seen.append((self.path, body))
            script.active += 1
            script.most_active = max(script.most_active, script.active)
            scripted = script.fail.popleft() if script.fail and not self.path.endswith("/models") else None
            if scripted is None and script.fail_when is not None:
                scripted = script.fail_when(body)
        try:
            self.reply(script, body, scripted)
        finally:
            with script.lock:
                script.active -= 1

    def reply(self, script, body, scripted):
        if scripted == "drop":
            self.close_connection = True
            self.connection.close()
            return
        if scripted == "slow":
            script.release.wait(900)
            self.close_connection = True
            return
        if scripted == "no json":
            self.send(200, b"<html>hello</html>")
            return
        if callable(scripted):
            self.close_connection = True
            with contextlib.suppress(OSError):
                scripted(self)
            return
        try:
            if isinstance(scripted, Refusal):
                raise scripted
            if script.key is not None and self.headers.get("Authorization") != f"Bearer {script.key}":
                raise Refusal(401, f"Incorrect API key provided: {self.headers.get('Authorization')}")
            self.send(200, json.dumps(answer(script, self.path, body)).encode())
        except Refusal as refusal:
            told = {
                "message": refusal.message,
                "type": "BadRequestError",
                "param": None,
                "code": refusal.status,
            }
            # vLLM and OpenAI put it under a key, SGLang does not.
            told = {"object": "error"} | told if script.flat_errors else {"error": told}
            self.send(refusal.status, json.dumps(told).encode(), refusal.headers)

    def send(self, status, data, headers=()):
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(data)

    def log_message(self, *_):
        pass


class Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass


@contextlib.contextmanager
def serving(script):
    """The server's address while it runs."""
    server = Quiet(("127.0.0.1", 0), Handler)
    server.script = script
    script.release = script.release or threading.Event()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        script.release.set()
        server.shutdown()
        server.server_close()
        thread.join()
