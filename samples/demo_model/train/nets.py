"""The three networks of the demo model, with the released models' architecture and tensor names (docs/architectures/z-image.md: S3-DiT, Qwen3, Flux AutoencoderKL).

Only widths and depths are small. State dicts are written as they are; nothing is renamed on export."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

# Head size 64 and widths that are multiples of 64, so that GPU kernels made for the real models run this one too.
TRANSFORMER = dict(dim=192, n_layers=5, n_refiner_layers=1, n_heads=3, in_channels=16, cap_feat_dim=128, axes_dims=[16, 24, 24], rope_theta=256.0, t_scale=1000.0, norm_eps=1e-5)
TEXT = dict(hidden_size=128, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1, head_dim=64, intermediate_size=128, rms_norm_eps=1e-6, rope_theta=1e6)
VAE = dict(block_out_channels=[64, 64, 64, 128], layers_per_block=1, latent_channels=16, norm_num_groups=32)
TIME_WIDTH = 256


class RMSNorm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x):
        return F.rms_norm(x.float(), (x.shape[-1],), self.weight.float(), self.eps).to(x.dtype)


# ---- Transformer --------------------------------------------------------------------------------------------------------------------------------

def rope_table(positions):
    """positions [T, 3] -> cos, sin [T, head_dim / 2]."""
    parts = []
    for axis, dim in enumerate(TRANSFORMER["axes_dims"]):
        frequency = 1.0 / (TRANSFORMER["rope_theta"] ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim))
        parts.append(positions[:, axis].double()[:, None] * frequency[None])
    angle = torch.cat(parts, 1).float()
    return angle.cos(), angle.sin()


def rotate(x, rope):
    cos, sin = rope  # [T, 32]; x [B, T, H, 64], pairs (2k, 2k + 1)
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = cos[None, :, None], sin[None, :, None]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, dim, heads, eps):
        super().__init__()
        self.heads = heads
        self.to_q, self.to_k, self.to_v = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.to_out = nn.ModuleList([nn.Linear(dim, dim, bias=False)])
        self.norm_q, self.norm_k = RMSNorm(dim // heads, eps), RMSNorm(dim // heads, eps)

    def forward(self, x, rope):
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)) for f in (self.to_q, self.to_k, self.to_v))
        q, k = rotate(self.norm_q(q), rope), rotate(self.norm_k(k), rope)
        out = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        return self.to_out[0](out.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, dim):
        super().__init__()
        hidden = int(dim / 3 * 8)
        self.w1, self.w2, self.w3 = nn.Linear(dim, hidden, bias=False), nn.Linear(hidden, dim, bias=False), nn.Linear(dim, hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, modulated):
        super().__init__()
        dim, eps = TRANSFORMER["dim"], TRANSFORMER["norm_eps"]
        self.attention, self.feed_forward = Attention(dim, TRANSFORMER["n_heads"], eps), FeedForward(dim)
        self.attention_norm1, self.attention_norm2, self.ffn_norm1, self.ffn_norm2 = (RMSNorm(dim, eps) for _ in range(4))
        if modulated:
            self.adaLN_modulation = nn.ModuleList([nn.Linear(min(dim, 256), 4 * dim)])

    def forward(self, x, rope, c=None):
        s1 = s2 = g1 = g2 = 1
        if c is not None:
            s1, g1, s2, g2 = self.adaLN_modulation[0](c)[:, None].chunk(4, -1)
            s1, s2, g1, g2 = 1 + s1, 1 + s2, g1.tanh(), g2.tanh()
        x = x + g1 * self.attention_norm2(self.attention(self.attention_norm1(x) * s1, rope))
        return x + g2 * self.ffn_norm2(self.feed_forward(self.ffn_norm1(x) * s2))


class FinalLayer(nn.Module):
    def __init__(self):
        super().__init__()
        dim = TRANSFORMER["dim"]
        self.linear = nn.Linear(dim, 4 * TRANSFORMER["in_channels"])
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(min(dim, 256), dim))

    def forward(self, x, c):
        return self.linear(F.layer_norm(x.float(), (x.shape[-1],), eps=1e-6).to(x.dtype) * (1 + self.adaLN_modulation(c)[:, None]))


def patches(latents):
    """[B, channels, h, w] -> rows of 2x2 patches [B, h * w / 4, 4 * channels]: row, column and channel of the patch, channels fastest."""
    b, channels, h, w = latents.shape
    return latents.reshape(b, channels, h // 2, 2, w // 2, 2).permute(0, 2, 4, 3, 5, 1).reshape(b, h * w // 4, 4 * channels)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        t = TRANSFORMER
        dim, width = t["dim"], min(t["dim"], 256)
        self.all_x_embedder = nn.ModuleDict({"2-1": nn.Linear(4 * t["in_channels"], dim)})
        self.all_final_layer = nn.ModuleDict({"2-1": FinalLayer()})
        self.noise_refiner = nn.ModuleList([Block(True) for _ in range(t["n_refiner_layers"])])
        self.context_refiner = nn.ModuleList([Block(False) for _ in range(t["n_refiner_layers"])])
        self.layers = nn.ModuleList([Block(True) for _ in range(t["n_layers"])])
        self.t_embedder = nn.ModuleDict({"mlp": nn.Sequential(nn.Linear(TIME_WIDTH, 128), nn.SiLU(), nn.Linear(128, width))})
        self.cap_embedder = nn.Sequential(RMSNorm(t["cap_feat_dim"], t["norm_eps"]), nn.Linear(t["cap_feat_dim"], dim))
        self.x_pad_token, self.cap_pad_token = nn.Parameter(torch.randn(1, dim) * 0.02), nn.Parameter(torch.randn(1, dim) * 0.02)
        self.tables = {}
        for name, p in self.named_parameters():
            if p.dim() == 2 and "pad_token" not in name:
                nn.init.normal_(p, std=0.5 / math.sqrt(p.shape[1]) if "adaLN" in name else 1 / math.sqrt(p.shape[1]))
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def compile_blocks(self):
        """For training: one compilation serves all blocks and sizes."""
        for block in [*self.noise_refiner, *self.context_refiner, *self.layers]:
            block.compile(dynamic=True)

    def table(self, height, width, captions, device):
        """Rotary tables of image rows (padded to 32) and caption rows."""
        key = (height, width, captions, str(device))
        if key not in self.tables:
            rows = torch.stack(torch.meshgrid(torch.tensor([captions + 1]), torch.arange(height), torch.arange(width), indexing="ij"), -1).reshape(-1, 3)
            pad = torch.zeros(-len(rows) % 32, 3, dtype=torch.long)
            caption = torch.stack((torch.arange(captions) + 1, torch.zeros(captions, dtype=torch.long), torch.zeros(captions, dtype=torch.long)), -1)
            tables = [rope_table(p) for p in (torch.cat((rows, pad)), caption)]
            self.tables[key] = [tuple(x.to(device) for x in t) for t in tables]
        return self.tables[key]

    def forward(self, latents, t, features, is_token, control=None):
        """latents [B, 16, h, w]; t [B] = 1 - sigma; features [B, Tc, 128], Tc a multiple of 32; is_token [B, Tc]: False where the learned pad token stands. control: a Control, or None."""
        b, channels, h, w = latents.shape
        image, caption = self.table(h // 2, w // 2, features.shape[1], latents.device)
        frequency = torch.exp(-math.log(10000) * torch.arange(TIME_WIDTH // 2, device=t.device) / (TIME_WIDTH // 2))
        angle = (t.float() * TRANSFORMER["t_scale"])[:, None] * frequency
        c = self.t_embedder["mlp"](torch.cat((angle.cos(), angle.sin()), -1))
        pads = image[0].shape[0] - h * w // 4
        padded = lambda rows: torch.cat((rows, self.x_pad_token.to(rows.dtype).expand(b, pads, -1)), 1) if pads else rows
        x = padded(self.all_x_embedder["2-1"](patches(latents)))
        if control:
            control.begin(padded(control.net.control_all_x_embedder["2-1"](patches(control.planes))), x, control.net.control_noise_refiner)
        for block in self.noise_refiner:
            x = block(x, image, c)
            if control:
                x = x + control.hint(image, c)
        y = torch.where(is_token[..., None], self.cap_embedder(features), self.cap_pad_token.to(x.dtype))
        for block in self.context_refiner:
            y = block(y, caption)
        u = torch.cat((x, y), 1)
        joint = tuple(torch.cat((p, q)) for p, q in zip(image, caption))
        if control:
            control.begin(torch.cat((control.stream, y), 1), u, control.net.control_layers)
        for k, block in enumerate(self.layers):
            u = block(u, joint, c)
            if control and k in control.net.places:
                u = u + control.hint(joint, c)
        out = self.all_final_layer["2-1"](u[:, : h * w // 4], c)
        return out.reshape(b, h // 2, w // 2, 2, 2, channels).permute(0, 5, 1, 3, 2, 4).reshape(b, channels, h, w)


# ---- Control net: Z-Image Fun 2.1 in its Lite size, by its authors' rule --------------------------------------------------------------------------------

class ControlBlock(Block):
    def __init__(self, first):
        super().__init__(True)
        if first:
            self.before_proj = nn.Linear(TRANSFORMER["dim"], TRANSFORMER["dim"])
        self.after_proj = nn.Linear(TRANSFORMER["dim"], TRANSFORMER["dim"])


class ControlNet(nn.Module):
    """A second stream of blocks, which begins with the transformer's rows and the control picture."""

    def __init__(self, layers=1):
        super().__init__()
        t = TRANSFORMER
        self.control_all_x_embedder = nn.ModuleDict({"2-1": nn.Linear(4 * (2 * t["in_channels"] + 1), t["dim"])})
        self.control_noise_refiner = nn.ModuleList([ControlBlock(k == 0) for k in range(t["n_refiner_layers"])])
        self.control_layers = nn.ModuleList([ControlBlock(k == 0) for k in range(layers)])
        self.places = [k * round(t["n_layers"] / layers) for k in range(layers)]  # after which layers a hint is added; no tensor says it

    @torch.no_grad()
    def start_from(self, transformer):
        """Blocks are copies of the transformer's, and hints are zero."""
        for own, others in ((self.control_noise_refiner, transformer.noise_refiner), (self.control_layers, [transformer.layers[k] for k in self.places])):
            for block, other in zip(own, others):
                block.load_state_dict(other.state_dict(), strict=False)
                block.after_proj.weight.zero_(), block.after_proj.bias.zero_()

    def compile_blocks(self):
        for block in [*self.control_noise_refiner, *self.control_layers]:
            block.compile(dynamic=True)


class Control:
    """A control net at work in one forward pass. planes [B, 33, h, w]: latents of the control picture, mask, latents of the masked picture, the last two zero without inpainting;
    strength: a number, or [B, 1, 1]."""

    def __init__(self, net, planes, strength=1.0):
        self.net, self.planes, self.strength = net, planes, strength

    def begin(self, stream, start, blocks):
        """A stage begins: its blocks, and the transformer's rows before its first block."""
        self.stream, self.blocks = blocks[0].before_proj(stream) + start, iter(blocks)

    def hint(self, rope, c):
        block = next(self.blocks)
        self.stream = block(self.stream, rope, c)
        return self.strength * block.after_proj(self.stream)


# ---- Text encoder: Qwen3, features are the residual stream after layer N - 2 -----------------------------------------------------------------------

class QwenAttention(nn.Module):
    def __init__(self):
        super().__init__()
        t = TEXT
        self.q_proj = nn.Linear(t["hidden_size"], t["num_attention_heads"] * t["head_dim"], bias=False)
        self.k_proj = nn.Linear(t["hidden_size"], t["num_key_value_heads"] * t["head_dim"], bias=False)
        self.v_proj = nn.Linear(t["hidden_size"], t["num_key_value_heads"] * t["head_dim"], bias=False)
        self.o_proj = nn.Linear(t["num_attention_heads"] * t["head_dim"], t["hidden_size"], bias=False)
        self.q_norm, self.k_norm = RMSNorm(t["head_dim"], t["rms_norm_eps"]), RMSNorm(t["head_dim"], t["rms_norm_eps"])

    def forward(self, x, rope):
        q, k, v = (f(x).unflatten(-1, (-1, TEXT["head_dim"])) for f in (self.q_proj, self.k_proj, self.v_proj))
        q, k = self.q_norm(q), self.k_norm(k)

        def turn(y):
            a, b = y.float().chunk(2, -1)
            cos, sin = (r[None, :, None] for r in rope)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(y.dtype).transpose(1, 2)

        groups = TEXT["num_attention_heads"] // TEXT["num_key_value_heads"]
        k, v = turn(k).repeat_interleave(groups, 1), v.transpose(1, 2).repeat_interleave(groups, 1)
        out = F.scaled_dot_product_attention(turn(q), k, v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).flatten(2))


class QwenMLP(nn.Module):
    def __init__(self):
        super().__init__()
        h, m = TEXT["hidden_size"], TEXT["intermediate_size"]
        self.gate_proj, self.up_proj, self.down_proj = nn.Linear(h, m, bias=False), nn.Linear(h, m, bias=False), nn.Linear(m, h, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class QwenLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn, self.mlp = QwenAttention(), QwenMLP()
        self.input_layernorm, self.post_attention_layernorm = (RMSNorm(TEXT["hidden_size"], TEXT["rms_norm_eps"]) for _ in range(2))

    def forward(self, x, rope):
        x = x + self.self_attn(self.input_layernorm(x), rope)
        return x + self.mlp(self.post_attention_layernorm(x))


class TextEncoder(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.model = nn.ModuleDict({"embed_tokens": nn.Embedding(vocabulary, TEXT["hidden_size"]), "layers": nn.ModuleList([QwenLayer() for _ in range(TEXT["num_hidden_layers"])]),
                                    "norm": RMSNorm(TEXT["hidden_size"], TEXT["rms_norm_eps"])})
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.5 if "embed" in name else 1 / math.sqrt(p.shape[1]))

    def compile_layers(self):
        for layer in self.model["layers"]:
            layer.compile(dynamic=True)

    def forward(self, ids):
        """ids [B, T], right-padded: causal attention makes pads harmless -> [B, T, 128]."""
        x = self.model["embed_tokens"](ids)
        inverse = 1.0 / (TEXT["rope_theta"] ** (torch.arange(0, TEXT["head_dim"], 2, device=ids.device).float() / TEXT["head_dim"]))
        angle = torch.arange(ids.shape[1], device=ids.device).float()[:, None] * inverse
        for layer in self.model["layers"][: TEXT["num_hidden_layers"] - 1]:
            x = layer(x, (angle.cos(), angle.sin()))
        return x


# ---- VAE --------------------------------------------------------------------------------------------------------------------------------------------

def group_norm(channels):
    return nn.GroupNorm(VAE["norm_num_groups"], channels, eps=1e-6)


class Res(nn.Module):
    def __init__(self, ci, co):
        super().__init__()
        self.norm1, self.conv1, self.norm2, self.conv2 = group_norm(ci), nn.Conv2d(ci, co, 3, padding=1), group_norm(co), nn.Conv2d(co, co, 3, padding=1)
        if ci != co:
            self.conv_shortcut = nn.Conv2d(ci, co, 1)

    def forward(self, x):
        h = self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x))))))
        return (self.conv_shortcut(x) if hasattr(self, "conv_shortcut") else x) + h


class VaeAttention(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.group_norm = group_norm(channels)
        self.to_q, self.to_k, self.to_v = (nn.Linear(channels, channels) for _ in range(3))
        self.to_out = nn.ModuleList([nn.Linear(channels, channels)])

    def forward(self, x):
        b, c, h, w = x.shape
        g = self.group_norm(x).flatten(2).transpose(1, 2)[:, None]
        out = F.scaled_dot_product_attention(self.to_q(g), self.to_k(g), self.to_v(g))
        return x + self.to_out[0](out)[:, 0].transpose(1, 2).reshape(b, c, h, w)


class Mid(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.resnets, self.attentions = nn.ModuleList([Res(channels, channels), Res(channels, channels)]), nn.ModuleList([VaeAttention(channels)])

    def forward(self, x):
        return self.resnets[1](self.attentions[0](self.resnets[0](x)))


class Sampler(nn.Module):
    def __init__(self, channels, up):
        super().__init__()
        self.up, self.conv = up, nn.Conv2d(channels, channels, 3, padding=1 if up else 0, stride=1 if up else 2)

    def forward(self, x):
        return self.conv(F.interpolate(x, scale_factor=2.0) if self.up else F.pad(x, (0, 1, 0, 1)))


class Stage(nn.Module):
    def __init__(self, ci, co, count, sampler, up):
        super().__init__()
        self.resnets = nn.ModuleList([Res(ci if k == 0 else co, co) for k in range(count)])
        if sampler:
            setattr(self, "upsamplers" if up else "downsamplers", nn.ModuleList([Sampler(co, up)]))

    def forward(self, x):
        for r in self.resnets:
            x = r(x)
        for sampler in getattr(self, "upsamplers", getattr(self, "downsamplers", [])):
            x = sampler(x)
        return x


class Half(nn.Module):
    """Encoder or decoder."""

    def __init__(self, up):
        super().__init__()
        widths, layers, z = VAE["block_out_channels"], VAE["layers_per_block"], VAE["latent_channels"]
        self.up = up
        if up:
            order = widths[::-1]
            self.conv_in, self.mid_block = nn.Conv2d(z, order[0], 3, padding=1), Mid(order[0])
            self.up_blocks = nn.ModuleList([Stage(order[max(i - 1, 0)], order[i], layers + 1, i < len(order) - 1, True) for i in range(len(order))])
        else:
            order = widths
            self.conv_in, self.mid_block = nn.Conv2d(3, order[0], 3, padding=1), Mid(order[-1])
            self.down_blocks = nn.ModuleList([Stage(order[max(i - 1, 0)], order[i], layers, i < len(order) - 1, False) for i in range(len(order))])
        self.conv_norm_out, self.conv_out = group_norm(order[-1]), nn.Conv2d(order[-1], 3 if up else 2 * z, 3, padding=1)

    def forward(self, x):
        x = self.conv_in(x)
        if self.up:
            x = self.mid_block(x)
        for stage in self.up_blocks if self.up else self.down_blocks:
            x = stage(x)
        if not self.up:
            x = self.mid_block(x)
        return self.conv_out(F.silu(self.conv_norm_out(x)))


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Half(False), Half(True)

    def encode(self, pixels):
        """[-1, 1] -> mean, log variance."""
        mean, logvar = self.encoder(pixels).chunk(2, 1)
        return mean, logvar.clamp(-30, 20)


if __name__ == "__main__":
    for name, net in (("transformer", Transformer()), ("control net", ControlNet()), ("text encoder", TextEncoder(640)), ("vae", Autoencoder())):
        print(name, sum(p.numel() for p in net.parameters()))
