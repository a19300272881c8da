"""Models and tokenizers from a folder or the Hugging Face hub, with errors that say what to do."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from refork.errors import BadInput, CannotDo

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
#: Files of which the hub's cache has one, if it has the model, adapter or tokenizer.
_TELLING = ("config.json", "adapter_config.json", "tokenizer_config.json", "tokenizer.json")


def load_model(path: str, *, adapter: str | None, dtype: str, device: str) -> Any:
    """A causal model in evaluation mode on a device, wrapped in its PEFT adapter if one is named.

    Raises:
        BadInput: no such model or adapter, an unknown dtype.
        CannotDo: the device is not there.
    """
    from transformers import AutoModelForCausalLM

    if dtype not in _DTYPES:
        raise BadInput(f"dtype {dtype!r} is not known", hint=f"one of {', '.join(_DTYPES)}")
    target = _device(device)
    cached = cache_only("a model", path)
    try:
        with quiet():
            model = AutoModelForCausalLM.from_pretrained(path, dtype=_DTYPES[dtype], local_files_only=cached)
    except (OSError, ValueError, KeyError) as error:
        raise _unreadable("a model", path, error) from error
    if adapter is not None:
        from peft import PeftModel

        cached = cache_only("an adapter", adapter)
        try:
            with warnings.catch_warnings():
                # PEFT asks transformers for a property under its old name.
                warnings.filterwarnings(
                    "ignore", message="`is_gradient_checkpointing`", category=FutureWarning
                )
                model = PeftModel.from_pretrained(model, adapter, local_files_only=cached)
        except (OSError, ValueError, KeyError) as error:
            raise _unreadable("an adapter", adapter, error) from error
    return model.to(target).eval()


def short_name(path: str) -> str:
    """What a model is called in records: a folder's own name, or the hub id. Paths of a machine stay out."""
    return Path(path).resolve().name if Path(path).is_dir() else path


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars of transformers while a model is read or written."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def load_tokenizer(path: str) -> Any:
    """The tokenizer that lies beside a model.

    Raises:
        BadInput: none is there.
    """
    from transformers import AutoTokenizer

    cached = cache_only("a tokenizer", path)
    try:
        return AutoTokenizer.from_pretrained(path, local_files_only=cached)
    except (OSError, ValueError, KeyError) as error:
        raise _unreadable("a tokenizer", path, error) from error


def cache_only(what: str, path: str) -> bool:
    """Whether a hub id must come from the cache, as the hub does not answer; one question, no retries.

    Raises:
        BadInput: it is no folder, the hub does not answer, and nothing of that name is cached.
    """
    from huggingface_hub import constants, get_session, try_to_load_from_cache

    if Path(path).exists():
        return False
    try:
        held = any(isinstance(try_to_load_from_cache(path, file), str) for file in _TELLING)
    except ValueError:  # no hub id: said at once where it is loaded
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except Exception as error:  # the hub's HTTP library is not always the same one
        if held:
            return True
        raise BadInput(
            f"cannot load {what}: there is no such folder, nothing of that name is cached, and "
            f"{constants.ENDPOINT} cannot be reached ({error})",
            where=path,
            hint="give a folder written by save_pretrained, or a hub id that is reachable or cached",
        ) from error
    return False


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise BadInput(f"device {name!r} is not known", hint="one of cpu, cuda, mps") from error
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(device.type, False):
        raise CannotDo(f"this machine has no {device.type} device that PyTorch can use", hint="use cpu")
    return device


def _unreadable(what: str, path: str, error: Exception) -> BadInput:
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return BadInput(
        f"cannot load {what}: {first}",
        where=path,
        hint="give a folder written by save_pretrained, or a hub id that is reachable or cached",
    )
