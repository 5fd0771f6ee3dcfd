import argparse
import os

import torch
import torch.nn as nn
from step_clock import StepClock

parser = argparse.ArgumentParser()
parser.add_argument("--dataroot", default="data", help="path to dataset")
parser.add_argument("--workers", type=int, help="number of data loading workers", default=0)
parser.add_argument("--batchSize", type=int, default=16, help="input batch size")
parser.add_argument("--imageSize", type=int, default=32, help="the height / width of the images")
parser.add_argument("--nz", type=int, default=32, help="size of the latent z vector")
parser.add_argument("--ngf", type=int, default=12)
parser.add_argument("--ndf", type=int, default=12)
parser.add_argument("--niter", type=int, default=250, help="number of epochs to train for")
parser.add_argument("--lr", type=float, default=0.0002, help="learning rate, default=0.0002")
parser.add_argument("--beta1", type=float, default=0.5, help="beta1 for adam. default=0.5")
parser.add_argument("--outf", default=".", help="folder to output images and model checkpoints")
parser.add_argument("--manualSeed", type=int, default=7, help="manual seed")
opt = parser.parse_args()
print(opt)

os.makedirs(opt.outf, exist_ok=True)
torch.manual_seed(opt.manualSeed)
nz, ngf, ndf = opt.nz, opt.ngf, opt.ndf


class Blobs(torch.utils.data.Dataset):
    def __len__(self):
        return 10000

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        line = torch.linspace(-1, 1, opt.imageSize)
        cy, cx = torch.rand(2, generator=g) - 0.5
        blob = torch.exp(-8 * ((line[:, None] - cy) ** 2 + (line[None] - cx) ** 2))
        return (blob * 2 - 1).expand(3, -1, -1).clone(), 0


dataloader = torch.utils.data.DataLoader(
    Blobs(), batch_size=opt.batchSize, shuffle=True, num_workers=int(opt.workers)
)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 4, 4, 1, 0, bias=False), nn.BatchNorm2d(ngf * 4), nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 4, ngf * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf * 2), nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf), nn.ReLU(True),
            nn.ConvTranspose2d(ngf, 3, 4, 2, 1, bias=False), nn.Tanh(),
        )  # fmt: skip

    def forward(self, x):
        return self.main(x)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(3, ndf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(ndf * 2), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 2, ndf * 4, 4, 2, 1, bias=False), nn.BatchNorm2d(ndf * 4), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 4, 1, 4, 1, 0, bias=False), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, x):
        return self.main(x).view(-1, 1).squeeze(1)


netG, netD = Generator(), Discriminator()
criterion = nn.BCELoss()
fixed_noise = torch.randn(opt.batchSize, nz, 1, 1)
optimizerD = torch.optim.Adam(netD.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))
clock = StepClock()

for epoch in range(opt.niter):
    for i, data in enumerate(dataloader, 0):
        # (1) maximize log(D(x)) + log(1 - D(G(z)))
        netD.zero_grad()
        real = data[0]
        many = real.size(0)
        errD_real = criterion(netD(real), torch.full((many,), 1.0))
        errD_real.backward()
        fake = netG(torch.randn(many, nz, 1, 1))
        errD_fake = criterion(netD(fake.detach()), torch.full((many,), 0.0))
        errD_fake.backward()
        optimizerD.step()
        # (2) maximize log(D(G(z)))
        netG.zero_grad()
        errG = criterion(netD(fake), torch.full((many,), 1.0))
        errG.backward()
        optimizerG.step()
        clock.tick(many)
        if i % 100 == 0:
            print(f"[{epoch}/{opt.niter}][{i}/{len(dataloader)}] Loss_G: {errG.item():.4f}")
            with torch.no_grad():
                torch.save(netG(fixed_noise), f"{opt.outf}/fake_samples_epoch_{epoch:03d}.pt")
    torch.save(netG.state_dict(), f"{opt.outf}/netG_epoch_{epoch}.pth")
