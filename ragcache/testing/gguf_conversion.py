"""GGUF file in, Hugging Face folder out, fully offline. Run by path: no package is needed.

Usage: python gguf_conversion.py MODEL.gguf FOLDER
Needs torch, transformers, gguf and accelerate.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"


def convert(gguf: Path, output: Path) -> None:
    """Write tokenizer, configuration and bfloat16 weights of a Llama-type GGUF file."""
    _write_tokenizer(gguf, output)
    _write_weights(gguf, output)
    for file in output.iterdir():
        file.chmod(0o644)  # safetensors writes 0600, which another user's engine cannot read


def _write_tokenizer(gguf: Path, output: Path) -> None:
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    # The model was trained with digits split one by one; the GGUF reader of transformers drops
    # that step, and two blanks before a digit then give other token ids.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.save_pretrained(str(output))


def _write_weights(gguf: Path, output: Path) -> None:
    import torch
    from transformers import (
        AutoModelForCausalLM,
        GenerationConfig,
        LlamaConfig,
        LlamaForCausalLM,
    )

    dequantised = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32
    )
    # transformers 5 refuses to save a model that came from GGUF ("not serializable"), so its
    # weights go into a plain one.
    config = dequantised.config.to_dict()
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        config.pop(key, None)
    plain = LlamaForCausalLM(LlamaConfig(**config)).bfloat16()
    plain.load_state_dict(dequantised.state_dict(), strict=True)
    plain.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=2, pad_token_id=2)
    plain.save_pretrained(str(output))


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
