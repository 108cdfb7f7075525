"""Writes the demo edit model in the released layout: model_index.json, scheduler, tokenizer, processor, text_encoder, transformer, vae; and the Turbo adapter as Lightning's files are."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

import edit_nets
import edit_tokens

ALPHA = 8.0  # of the adapter, as in the released ones: what its factors give is multiplied by ALPHA / rank
SIDE = 256   # of the pictures that the model is for
DEAD = ("attn.to_add_out.", "txt_mlp.")  # of the last block: nothing reads what they would make of the text


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")


def stored(state, dtype):
    return {k: v.detach().to(dtype).contiguous().cpu() for k, v in state.items()}


def configs(vocabulary, mean, deviation):
    """{path: content} of every json but the tokenizer's."""
    t, x, v, a = edit_nets.TRANSFORMER, edit_nets.TEXT, edit_nets.VISION, edit_nets.VAE
    special = {name: vocabulary - len(edit_tokens.SPECIAL) + k for k, name in enumerate(edit_tokens.SPECIAL)}
    vision = {"depth": v["depth"], "fullatt_block_indexes": v["full_blocks"], "hidden_act": "silu", "hidden_size": v["hidden_size"], "in_chans": 3, "in_channels": 3, "intermediate_size": v["intermediate_size"],
              "model_type": "qwen2_5_vl", "num_heads": v["num_heads"], "out_hidden_size": v["out_hidden_size"], "patch_size": v["patch_size"], "spatial_merge_size": v["spatial_merge_size"],
              "spatial_patch_size": v["patch_size"], "temporal_patch_size": v["temporal_patch_size"], "tokens_per_second": 2, "window_size": v["window_size"]}
    return {
        "model_index.json": {"_class_name": "QwenImageEditPlusPipeline", "sumi": {"steps": 20, "guidance": 2}, "processor": ["transformers", "Qwen2VLProcessor"], "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
                             "text_encoder": ["transformers", "Qwen2_5_VLForConditionalGeneration"], "tokenizer": ["transformers", "Qwen2Tokenizer"],
                             "transformer": ["diffusers", "QwenImageTransformer2DModel"], "vae": ["diffusers", "AutoencoderKLQwenImage"]},
        "scheduler/scheduler_config.json": {"_class_name": "FlowMatchEulerDiscreteScheduler", "base_image_seq_len": 256, "base_shift": 0.5, "invert_sigmas": False, "max_image_seq_len": 8192,
                                            "max_shift": 0.9, "num_train_timesteps": 1000, "shift": 1.0, "shift_terminal": 0.02, "stochastic_sampling": False, "time_shift_type": "exponential",
                                            "use_dynamic_shifting": True},
        "processor/preprocessor_config.json": {"do_convert_rgb": True, "do_normalize": True, "do_rescale": True, "do_resize": True, "image_mean": list(edit_nets.MEAN),
                                               "image_processor_type": "Qwen2VLImageProcessor", "image_std": list(edit_nets.DEVIATION), "max_pixels": edit_nets.VISION_AREA, "merge_size": 2,
                                               "min_pixels": 3136, "patch_size": 14, "resample": 3, "rescale_factor": 1 / 255, "temporal_patch_size": 2},
        "transformer/config.json": {"_class_name": "QwenImageTransformer2DModel", "attention_head_dim": t["dim"] // t["heads"], "axes_dims_rope": t["axes"], "guidance_embeds": False,
                                    "in_channels": 4 * t["channels"], "joint_attention_dim": t["features"], "num_attention_heads": t["heads"], "num_layers": t["layers"], "out_channels": t["channels"],
                                    "patch_size": 2, "pooled_projection_dim": 768, "zero_cond_t": True},
        "text_encoder/config.json": {"architectures": ["Qwen2_5_VLForConditionalGeneration"], "bos_token_id": special["<|endoftext|>"], "eos_token_id": special["<|im_end|>"], "hidden_act": "silu",
                                     "hidden_size": x["hidden_size"], "image_token_id": special["<|image_pad|>"], "intermediate_size": x["intermediate_size"], "max_position_embeddings": 4096,
                                     "model_type": "qwen2_5_vl", "num_attention_heads": x["num_attention_heads"], "num_hidden_layers": x["num_hidden_layers"],
                                     "num_key_value_heads": x["num_key_value_heads"], "rms_norm_eps": x["rms_norm_eps"],
                                     "rope_scaling": {"mrope_section": x["sections"], "rope_type": "default", "type": "default"}, "rope_theta": x["rope_theta"], "tie_word_embeddings": True,
                                     "torch_dtype": "bfloat16", "use_sliding_window": False, "vision_config": vision, "vision_end_token_id": special["<|vision_end|>"],
                                     "vision_start_token_id": special["<|vision_start|>"], "vocab_size": edit_tokens.ROWS},
        # sample_size: references are encoded in this area, as the released model encodes them in 1024 x 1024
        "vae/config.json": {"_class_name": "AutoencoderKLQwenImage", "attn_scales": [], "base_dim": a["base"], "dim_mult": a["factors"], "dropout": 0.0, "latents_mean": mean, "latents_std": deviation,
                            "num_res_blocks": a["blocks"], "sample_size": SIDE, "temperal_downsample": [False, False, False], "z_dim": a["channels"]},
    }


def export(folder, tokenizer_folder, transformer, encoder, vae, statistics, adapter=None, dtype=torch.bfloat16):
    """statistics: (means, deviations) of the latents' channels; adapter: {module: (down, up)}. Returns the number of bytes."""
    folder = Path(folder)
    for file in sorted(Path(tokenizer_folder).iterdir()):
        (folder / "tokenizer").mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer" / file.name).write_bytes(file.read_bytes())
    mean, deviation = ([round(float(v), 4) for v in values] for values in statistics)
    for name, content in configs(edit_tokens.load(tokenizer_folder).get_vocab_size(), mean, deviation).items():
        write_json(folder / name, content)
    last = f"transformer_blocks.{edit_nets.TRANSFORMER['layers'] - 1}."
    alive = {k: v for k, v in transformer.state_dict().items() if not k.startswith(tuple(last + d for d in DEAD))}
    save_file(stored(alive, dtype), folder / "transformer/diffusion_pytorch_model.safetensors", {"format": "pt"})
    save_file(stored(encoder.state_dict(), dtype), folder / "text_encoder/model.safetensors", {"format": "pt"})
    save_file(stored(edit_nets.vae_state(vae), dtype), folder / "vae/diffusion_pytorch_model.safetensors", {"format": "pt"})
    if adapter:
        write_adapter(folder / "lora/turbo.safetensors", adapter, dtype)
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())


def adapted_modules(transformer):
    """The attention's and the MLPs' matrices of every block, but those that nothing reads."""
    last = f"transformer_blocks.{len(transformer.transformer_blocks) - 1}."
    dead = tuple(last + d for d in DEAD)
    return [n for n, m in transformer.named_modules() if isinstance(m, torch.nn.Linear) and (".attn." in n or "_mlp." in n) and not (n + ".").startswith(dead)]


def write_adapter(path, adapter, dtype=torch.bfloat16):
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {}
    for name, (down, up) in adapter.items():
        state[name + ".lora_down.weight"], state[name + ".lora_up.weight"] = down, up
        state[name + ".alpha"] = torch.tensor(ALPHA)
    save_file(stored(state, dtype), path, {"format": "pt"})
