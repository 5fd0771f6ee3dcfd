import torch
from torch import nn


class Denoiser(nn.Module):
    """Karras preconditioning around a small U-Net."""

    def __init__(self, config):
        super().__init__()
        a, b = config["channels"]
        self.sigma_data = config["sigma_data"]
        self.mapping = nn.Sequential(nn.Linear(1, config["mapping_out"]), nn.SiLU())
        self.scale = nn.Linear(config["mapping_out"], b)
        self.down = nn.Conv2d(config["input_channels"], a, 3, padding=1)
        self.down2 = nn.Conv2d(a, b, 3, stride=2, padding=1)
        self.mid = nn.Sequential(nn.GroupNorm(4, b), nn.SiLU(), nn.Conv2d(b, b, 3, padding=1))
        self.up = nn.ConvTranspose2d(b, a, 2, stride=2)
        self.out = nn.Conv2d(2 * a, config["input_channels"], 3, padding=1)

    def forward(self, x, sigma):
        sigma = sigma.view(-1, 1, 1, 1)
        c_skip = self.sigma_data**2 / (sigma**2 + self.sigma_data**2)
        c_out = sigma * self.sigma_data / (sigma**2 + self.sigma_data**2).sqrt()
        c_in = 1 / (sigma**2 + self.sigma_data**2).sqrt()
        cond = self.scale(self.mapping(sigma.view(-1, 1).log() / 4))[..., None, None]
        first = torch.nn.functional.silu(self.down(x * c_in))
        mid = self.mid(self.down2(first) * (1 + cond))
        inner = self.out(torch.cat([self.up(mid), first], 1))
        return inner * c_out + x * c_skip
