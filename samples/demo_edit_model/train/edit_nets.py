"""The networks of the demo edit model, with the released models' architecture and tensor names (Qwen-Image-Edit-Plus with zero_cond_t, Qwen2.5-VL with its vision tower, AutoencoderKLQwenImage).

Only widths and depths are small. The VAE is trained as the plain picture network that its causal layers are for one frame; `vae_state` writes the released layout, in which a kernel's earlier frames are zeros."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

# Heads of 64 (80 in the vision tower), so that GPU kernels made for the real models run this one too.
TRANSFORMER = dict(dim=128, layers=5, heads=2, channels=16, features=128, axes=[8, 28, 28])
TEXT = dict(hidden_size=128, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, intermediate_size=192, rms_norm_eps=1e-6, rope_theta=1e6, sections=[8, 12, 12])
VISION = dict(depth=2, hidden_size=80, num_heads=1, intermediate_size=96, out_hidden_size=128, patch_size=14, temporal_patch_size=2, spatial_merge_size=2, window_size=112, full_blocks=[1])
VISION_AREA = 30000  # the processor's max_pixels: a square picture becomes 168 x 168, which is 6 x 6 cells
VAE = dict(base=32, factors=[1, 1, 1, 2], blocks=1, channels=16)
TIME_WIDTH = 256
EPS = 1e-6
MEAN, DEVIATION = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return F.rms_norm(x.float(), (x.shape[-1],), self.weight.float(), EPS).to(x.dtype)


def init_matrices(net, special=()):
    """Rows of unit length; `special`: (part of a name, factor)."""
    for name, p in net.named_parameters():
        if p.dim() == 2:
            factor = next((f for part, f in special if part in name), 1.0)
            nn.init.normal_(p, std=factor / math.sqrt(p.shape[1]))
        elif name.endswith("bias"):
            nn.init.zeros_(p)


# ---- Transformer --------------------------------------------------------------------------------------------------------------------------------

def picture_positions(frame, height, width):
    """Centred, with one more before the middle than after it for odd sides."""
    y, x = torch.meshgrid(torch.arange(height) - (height - height // 2), torch.arange(width) - (width - width // 2), indexing="ij")
    return torch.stack((torch.full_like(y, frame), y, x), -1).reshape(-1, 3)


def rope_of(positions):
    """[S, 3] -> cos, sin [S, 64], for the pairs (2k, 2k + 1): sin is negative in the first of each."""
    parts = [positions[:, a].double()[:, None] * (10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d))[None] for a, d in enumerate(TRANSFORMER["axes"])]
    angle = torch.cat(parts, 1).float()
    return torch.stack((angle.cos(), angle.cos()), -1).flatten(1), torch.stack((-angle.sin(), angle.sin()), -1).flatten(1)


def rotate(x, cos, sin):
    """x [B, S, H, 64], pairs (2k, 2k + 1)."""
    y = x.float()
    swapped = y.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    return (y * cos[None, :, None] + swapped * sin[None, :, None]).to(x.dtype)


class JointAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.to_q, self.to_k, self.to_v, self.add_q_proj, self.add_k_proj, self.add_v_proj, self.to_add_out = (nn.Linear(dim, dim) for _ in range(7))
        self.to_out = nn.ModuleList([nn.Linear(dim, dim)])
        self.norm_q, self.norm_k, self.norm_added_q, self.norm_added_k = (RMSNorm(dim // heads) for _ in range(4))

    def forward(self, image, text, cos, sin):
        heads = lambda linear, x: linear(x).unflatten(-1, (self.heads, -1))
        q = torch.cat((self.norm_added_q(heads(self.add_q_proj, text)), self.norm_q(heads(self.to_q, image))), 1)
        k = torch.cat((self.norm_added_k(heads(self.add_k_proj, text)), self.norm_k(heads(self.to_k, image))), 1)
        v = torch.cat((heads(self.add_v_proj, text), heads(self.to_v, image)), 1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        out = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2).flatten(2)
        return self.to_out[0](out[:, text.shape[1] :]), self.to_add_out(out[:, : text.shape[1]])


class Gelu(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.proj = nn.Linear(dim, hidden)

    def forward(self, x):
        return F.gelu(self.proj(x), approximate="tanh")


class FeedForward(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.ModuleList([Gelu(dim, 4 * dim), nn.Identity(), nn.Linear(4 * dim, dim)])

    def forward(self, x):
        return self.net[2](self.net[0](x))


def layer_norm(x):
    return F.layer_norm(x.float(), (x.shape[-1],), eps=EPS).to(x.dtype)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.img_mod, self.txt_mod = (nn.Sequential(nn.SiLU(), nn.Linear(dim, 6 * dim)) for _ in range(2))
        self.attn, self.img_mlp, self.txt_mlp = JointAttention(dim, heads), FeedForward(dim), FeedForward(dim)

    def forward(self, x, c, time, zero, targets, cos, sin):
        """x [B, I, D], of which the first `targets` rows are the image's and the others the references'; c [B, T, D]; time [B, D], zero [1, D]."""
        now, at_zero, text = (f(t)[:, None].chunk(6, -1) for f, t in ((self.img_mod, time), (self.img_mod, zero), (self.txt_mod, time)))
        scaled = lambda y, scale, shift: torch.cat((y[:, :targets] * (1 + now[scale]) + now[shift], y[:, targets:] * (1 + at_zero[scale]) + at_zero[shift]), 1)
        gated = lambda y, gate: torch.cat((y[:, :targets] * now[gate], y[:, targets:] * at_zero[gate]), 1)
        xi, ct = self.attn(scaled(layer_norm(x), 1, 0), layer_norm(c) * (1 + text[1]) + text[0], cos, sin)
        x, c = x + gated(xi, 2), c + text[2] * ct
        x = x + gated(self.img_mlp(scaled(layer_norm(x), 4, 3)), 5)
        return x, c + text[5] * self.txt_mlp(layer_norm(c) * (1 + text[4]) + text[3])


class TimestepEmbedder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear_1, self.linear_2 = nn.Linear(TIME_WIDTH, dim), nn.Linear(dim, dim)

    def forward(self, t):
        frequency = torch.exp(-math.log(10000) * torch.arange(TIME_WIDTH // 2, device=t.device) / (TIME_WIDTH // 2))
        angle = 1000 * (t.float()[:, None] * frequency)
        return self.linear_2(F.silu(self.linear_1(torch.cat((angle.cos(), angle.sin()), -1))))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        t = TRANSFORMER
        dim = t["dim"]
        self.img_in, self.txt_norm, self.txt_in = nn.Linear(4 * t["channels"], dim), RMSNorm(t["features"]), nn.Linear(t["features"], dim)
        self.time_text_embed = nn.ModuleDict({"timestep_embedder": TimestepEmbedder(dim)})
        self.transformer_blocks = nn.ModuleList([Block(dim, t["heads"]) for _ in range(t["layers"])])
        self.norm_out, self.proj_out = nn.ModuleDict({"linear": nn.Linear(dim, 2 * dim)}), nn.Linear(dim, 4 * t["channels"])
        self.tables = {}
        init_matrices(self, (("_mod.", 0.3), ("norm_out", 0.3)))
        # gates begin open a little: what a block adds reaches the stream from the first step on
        for block in self.transformer_blocks:
            for mod in (block.img_mod, block.txt_mod):
                mod[1].bias.data[2 * dim : 3 * dim] = mod[1].bias.data[5 * dim :] = 0.5

    def compile_blocks(self):
        """For training: one compilation serves all blocks and sizes."""
        for block in self.transformer_blocks:
            block.compile(dynamic=True)

    def table(self, grids, text, device):
        """Rotary table of the joint rows, text first. grids: target, then references, in tokens."""
        key = (tuple(grids), text, str(device))
        if key not in self.tables:
            begin = max(max(h // 2, w // 2) for h, w in grids)
            positions = [(begin + torch.arange(text))[:, None].expand(-1, 3)] + [picture_positions(k, h, w) for k, (h, w) in enumerate(grids)]
            cos, sin = rope_of(torch.cat(positions))
            self.tables[key] = cos.to(device), sin.to(device)
        return self.tables[key]

    def forward(self, latents, references, t, features, streams=None):
        """latents [B, 16, h, w] at sigma t [B]; references: list of the same kind, not noised; features [B, T, F] -> velocity (noise - data) [B, 16, h, w]. streams: a list that gets the rows of pictures behind each block."""
        pictures = [latents, *references]
        grids = [(p.shape[2] // 2, p.shape[3] // 2) for p in pictures]
        cos, sin = self.table(grids, features.shape[1], latents.device)
        embed = self.time_text_embed["timestep_embedder"]
        time, zero = embed(t), embed(torch.zeros(1, device=t.device))
        x = self.img_in(torch.cat([pack(p) for p in pictures], 1))
        c = self.txt_in(self.txt_norm(features))
        height, width = grids[0]
        for block in self.transformer_blocks:
            x, c = block(x, c, time, zero, height * width, cos, sin)
            if streams is not None:
                streams.append(x)
        scale, shift = self.norm_out["linear"](F.silu(time))[:, None].chunk(2, -1)
        out = self.proj_out(layer_norm(x[:, : height * width]) * (1 + scale) + shift)
        return unpack(out, height, width)


def pack(z):
    """[B, C, h, w] -> [B, h w / 4, 4 C], channels c * 4 + dy * 2 + dx."""
    b, c, h, w = z.shape
    return z.reshape(b, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(b, h * w // 4, 4 * c)


def unpack(tokens, height, width):
    b, _, values = tokens.shape
    return tokens.reshape(b, height, width, values // 4, 2, 2).permute(0, 3, 1, 4, 2, 5).reshape(b, values // 4, 2 * height, 2 * width)


# ---- Language model: Qwen2.5-VL, features are those after the final norm ---------------------------------------------------------------------------

class TextAttention(nn.Module):
    def __init__(self):
        super().__init__()
        width, heads, groups = TEXT["hidden_size"], TEXT["num_attention_heads"], TEXT["num_key_value_heads"]
        self.head = width // heads
        self.q_proj, self.k_proj, self.v_proj = nn.Linear(width, width), nn.Linear(width, groups * self.head), nn.Linear(width, groups * self.head)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x, cos, sin):
        q, k, v = (f(x).unflatten(-1, (-1, self.head)) for f in (self.q_proj, self.k_proj, self.v_proj))

        def turn(y):
            a, b = y.float().chunk(2, -1)
            c, s = cos[None, :, None], sin[None, :, None]
            return torch.cat((a * c - b * s, b * c + a * s), -1).to(y.dtype).transpose(1, 2)

        repeat = q.shape[2] // k.shape[2]
        k, v = turn(k).repeat_interleave(repeat, 1), v.transpose(1, 2).repeat_interleave(repeat, 1)
        return self.o_proj(F.scaled_dot_product_attention(turn(q), k, v, is_causal=True).transpose(1, 2).flatten(2))


class GatedMLP(nn.Module):
    def __init__(self, width, hidden, bias):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = nn.Linear(width, hidden, bias=bias), nn.Linear(width, hidden, bias=bias), nn.Linear(hidden, width, bias=bias)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class TextLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn, self.mlp = TextAttention(), GatedMLP(TEXT["hidden_size"], TEXT["intermediate_size"], False)
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(TEXT["hidden_size"]), RMSNorm(TEXT["hidden_size"])

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


def text_positions(runs):
    """runs: numbers of text tokens, and (rows, columns) of pictures, in order -> [S, 3] of time, row, column."""
    out, p = [], 0
    for run in runs:
        if isinstance(run, tuple):
            y, x = torch.meshgrid(torch.arange(run[0]), torch.arange(run[1]), indexing="ij")
            out.append(torch.stack((torch.zeros_like(y), y, x), -1).reshape(-1, 3) + p)
            p += max(run)
        else:
            out.append((p + torch.arange(run))[:, None].expand(-1, 3))
            p += run
    return torch.cat(out)


# ---- Vision tower ------------------------------------------------------------------------------------------------------------------------------

class VisionAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, cos, sin, mask):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)

        def turn(y):
            a, b = y.float().chunk(2, -1)
            c, s = cos[None, :, None], sin[None, :, None]
            return torch.cat((a * c - b * s, b * c + a * s), -1).to(y.dtype).transpose(1, 2)

        out = F.scaled_dot_product_attention(turn(q), turn(k), v.transpose(1, 2), attn_mask=mask)
        return self.proj(out.transpose(1, 2).flatten(2))


class VisionBlock(nn.Module):
    def __init__(self):
        super().__init__()
        v = VISION
        self.norm1, self.norm2 = RMSNorm(v["hidden_size"]), RMSNorm(v["hidden_size"])
        self.attn, self.mlp = VisionAttention(v["hidden_size"], v["num_heads"]), GatedMLP(v["hidden_size"], v["intermediate_size"], True)

    def forward(self, x, cos, sin, mask):
        x = x + self.attn(self.norm1(x), cos, sin, mask)
        return x + self.mlp(self.norm2(x))


class Merger(nn.Module):
    def __init__(self):
        super().__init__()
        merged = VISION["spatial_merge_size"] ** 2 * VISION["hidden_size"]
        self.ln_q, self.mlp = RMSNorm(VISION["hidden_size"]), nn.Sequential(nn.Linear(merged, merged), nn.GELU(), nn.Linear(merged, VISION["out_hidden_size"]))

    def forward(self, x):
        return self.mlp(self.ln_q(x).reshape(x.shape[0], x.shape[1] // 4, -1))


class PatchEmbed(nn.Module):
    def __init__(self):
        super().__init__()
        v = VISION
        shape = (v["hidden_size"], 3, v["temporal_patch_size"], v["patch_size"], v["patch_size"])
        self.proj = nn.Conv3d(3, v["hidden_size"], shape[2:], bias=False)
        nn.init.normal_(self.proj.weight, std=1 / math.sqrt(3 * 2 * 14 * 14))


class Vision(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch_embed, self.merger = PatchEmbed(), Merger()
        self.blocks = nn.ModuleList([VisionBlock() for _ in range(VISION["depth"])])
        for name, values in (("mean", MEAN), ("deviation", DEVIATION)):
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)
        self.tables = {}

    def table(self, high, wide, device):
        """Of high x wide cells, patches in the order of cells: rotary tables [P, 20], and which patches share a window."""
        key = (high, wide, str(device))
        if key not in self.tables:
            window = VISION["window_size"] // (VISION["patch_size"] * VISION["spatial_merge_size"])
            cells = torch.arange(high * wide)
            y, x = cells // wide, cells % wide
            number = (y // window) * (wide // window + 1) + x // window
            py = (2 * y[:, None] + torch.tensor([0, 0, 1, 1])).flatten()
            px = (2 * x[:, None] + torch.tensor([0, 1, 0, 1])).flatten()
            quarter = VISION["hidden_size"] // VISION["num_heads"] // 4
            inverse = 10000.0 ** (-torch.arange(quarter, dtype=torch.float64) / quarter)
            angle = torch.cat((py[:, None] * inverse, px[:, None] * inverse), 1).float()
            number = number.repeat_interleave(4)
            self.tables[key] = angle.cos().to(device), angle.sin().to(device), (number[:, None] == number[None]).to(device)
        return self.tables[key]

    def forward(self, pixels):
        """Pixels in [0, 1], [N, 3, 28 a, 28 b] -> [N, a b, width]. All patches stay in the order of cells: a mask stands for the windows."""
        n, _, h, w = pixels.shape
        x = (pixels.float() - self.mean) / self.deviation
        x = x.reshape(n, 3, h // 28, 2, 14, w // 28, 2, 14).permute(0, 2, 5, 3, 6, 1, 4, 7).reshape(n, h * w // 196, 588)
        x = F.linear(x, self.patch_embed.proj.weight.sum(2).flatten(1))
        cos, sin, mask = self.table(h // 28, w // 28, pixels.device)
        for k, block in enumerate(self.blocks):
            x = block(x, cos, sin, None if k in VISION["full_blocks"] else mask)
        return self.merger(x)


class TextEncoder(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        width = TEXT["hidden_size"]
        self.model = nn.ModuleDict({"embed_tokens": nn.Embedding(vocabulary, width), "layers": nn.ModuleList([TextLayer() for _ in range(TEXT["num_hidden_layers"])]), "norm": RMSNorm(width)})
        self.visual = Vision()
        self.tables = {}
        init_matrices(self)
        nn.init.normal_(self.model["embed_tokens"].weight, std=0.5)

    def compile_blocks(self):
        for block in [*self.model["layers"], *self.visual.blocks]:
            block.compile(dynamic=True)

    def table(self, runs, device):
        key = (tuple(runs), str(device))
        if key not in self.tables:
            positions = text_positions(runs)
            head = TEXT["hidden_size"] // TEXT["num_attention_heads"]
            axis = torch.tensor([a for a, count in enumerate(TEXT["sections"]) for _ in range(count)])
            inverse = TEXT["rope_theta"] ** (-torch.arange(0, head, 2, dtype=torch.float64) / head)
            angle = (positions.double()[:, axis] * inverse).float()
            self.tables[key] = angle.cos().to(device), angle.sin().to(device)
        return self.tables[key]

    def forward(self, ids, runs, pictures, dropped):
        """ids [B, S], all rows with the same layout `runs` (see text_positions); pictures: list of pixels [B, 3, h, w], one for each (rows, columns) of runs -> [B, S - dropped, width]."""
        x = self.model["embed_tokens"](ids)
        parts, at, k = [], 0, 0
        rows = [self.visual(p).to(x.dtype) for p in pictures]
        for run in runs:
            count = run[0] * run[1] if isinstance(run, tuple) else run
            parts.append(rows[k] if isinstance(run, tuple) else x[:, at : at + count])
            k, at = k + isinstance(run, tuple), at + count
        x = torch.cat(parts, 1)
        cos, sin = self.table(runs, ids.device)
        for layer in self.model["layers"]:
            x = layer(x, cos, sin)
        return self.model["norm"](x[:, dropped:])


# ---- VAE --------------------------------------------------------------------------------------------------------------------------------------------

class ChannelNorm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(channels))

    def forward(self, x):
        return F.normalize(x.float(), dim=1).to(x.dtype) * (x.shape[1] ** 0.5) * self.gamma[:, None, None]


class Res(nn.Module):
    def __init__(self, ci, co):
        super().__init__()
        self.norm1, self.conv1, self.norm2, self.conv2 = ChannelNorm(ci), nn.Conv2d(ci, co, 3, padding=1), ChannelNorm(co), nn.Conv2d(co, co, 3, padding=1)
        if ci != co:
            self.conv_shortcut = nn.Conv2d(ci, co, 1)

    def forward(self, x):
        h = self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x))))))
        return (self.conv_shortcut(x) if hasattr(self, "conv_shortcut") else x) + h


class VaeAttention(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm, self.to_qkv, self.proj = ChannelNorm(channels), nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.to_qkv(self.norm(x)).reshape(b, 3, c, h * w).transpose(2, 3)[:, :, None].unbind(1)
        out = F.scaled_dot_product_attention(q, k, v)[:, 0]
        return x + self.proj(out.transpose(1, 2).reshape(b, c, h, w))


class Mid(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.resnets, self.attentions = nn.ModuleList([Res(channels, channels), Res(channels, channels)]), nn.ModuleList([VaeAttention(channels)])

    def forward(self, x):
        return self.resnets[1](self.attentions[0](self.resnets[0](x)))


class Resample(nn.Module):
    def __init__(self, ci, co, up):
        super().__init__()
        self.up, self.resample = up, nn.ModuleList([nn.Identity(), nn.Conv2d(ci, co, 3, padding=1 if up else 0, stride=1 if up else 2)])

    def forward(self, x):
        return self.resample[1](F.interpolate(x, scale_factor=2.0) if self.up else F.pad(x, (0, 1, 0, 1)))


class UpStage(nn.Module):
    def __init__(self, ci, co, last):
        super().__init__()
        self.resnets = nn.ModuleList([Res(ci if k == 0 else co, co) for k in range(VAE["blocks"] + 1)])
        if not last:
            self.upsamplers = nn.ModuleList([Resample(co, co // 2, True)])

    def forward(self, x):
        for r in self.resnets:
            x = r(x)
        return self.upsamplers[0](x) if hasattr(self, "upsamplers") else x


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [VAE["base"] * f for f in VAE["factors"]]
        self.conv_in, blocks, width = nn.Conv2d(3, VAE["base"], 3, padding=1), [], VAE["base"]
        for k, co in enumerate(widths):
            for _ in range(VAE["blocks"]):
                blocks.append(Res(width, co))
                width = co
            if k < len(widths) - 1:
                blocks.append(Resample(co, co, False))
        self.down_blocks, self.mid_block = nn.ModuleList(blocks), Mid(width)
        self.norm_out, self.conv_out = ChannelNorm(width), nn.Conv2d(width, 2 * VAE["channels"], 3, padding=1)

    def forward(self, x):
        x = self.conv_in(x)
        for block in self.down_blocks:
            x = block(x)
        return self.conv_out(F.silu(self.norm_out(self.mid_block(x))))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [VAE["base"] * f for f in VAE["factors"]][::-1]
        self.conv_in, self.mid_block = nn.Conv2d(VAE["channels"], widths[0], 3, padding=1), Mid(widths[0])
        inputs = [widths[0]] + [w // 2 for w in widths[:-1]]
        self.up_blocks = nn.ModuleList([UpStage(ci, co, k == len(widths) - 1) for k, (ci, co) in enumerate(zip(inputs, widths))])
        self.norm_out, self.conv_out = ChannelNorm(widths[-1]), nn.Conv2d(widths[-1], 3, 3, padding=1)

    def forward(self, z):
        x = self.mid_block(self.conv_in(z))
        for stage in self.up_blocks:
            x = stage(x)
        return self.conv_out(F.silu(self.norm_out(x)))


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder, z = Encoder(), Decoder(), VAE["channels"]
        self.quant_conv, self.post_quant_conv = nn.Conv2d(2 * z, 2 * z, 1), nn.Conv2d(z, z, 1)

    def encode(self, pixels):
        """[-1, 1] -> mean, log variance."""
        mean, logvar = self.quant_conv(self.encoder(pixels)).chunk(2, 1)
        return mean, logvar.clamp(-30, 20)

    def decode(self, latents):
        return self.decoder(self.post_quant_conv(latents))


def vae_state(vae):
    """The released layout: kernels have three frames, of which a single picture meets the last; norms have dimensions of one."""
    out = {}
    for name, p in vae.state_dict().items():
        if name.endswith("gamma"):
            p = p[:, None, None] if "attentions" in name else p[:, None, None, None]
        elif p.dim() == 4 and "resample" not in name and "attentions" not in name:
            p = p[:, :, None]
            if p.shape[-1] == 3:
                p = torch.cat((torch.zeros_like(p), torch.zeros_like(p), p), 2)
        out[name] = p.contiguous()
    return out


if __name__ == "__main__":
    total = 0
    for name, state in (("transformer", Transformer().state_dict()), ("text encoder with vision tower", TextEncoder(960).state_dict()), ("vae", vae_state(Autoencoder()))):
        count = sum(p.numel() for p in state.values())
        total += count
        print(f"{name}: {count} values, {2e-6 * count:.2f} MB")
    print(f"all: {2e-6 * total:.2f} MB")
