import torch


def get_sigmas_karras(n, sigma_min, sigma_max, rho=7.0):
    ramp = torch.linspace(0, 1, n)
    low, high = sigma_min ** (1 / rho), sigma_max ** (1 / rho)
    return torch.cat([(high + ramp * (low - high)) ** rho, torch.zeros(1)])


@torch.no_grad()
def sample_heun(model, x, sigmas):
    s_in = x.new_ones([x.shape[0]])
    for i in range(len(sigmas) - 1):
        d = (x - model(x, sigmas[i] * s_in)) / sigmas[i]
        dt = sigmas[i + 1] - sigmas[i]
        if sigmas[i + 1] == 0:
            x = x + d * dt
        else:
            x_2 = x + d * dt
            d_2 = (x_2 - model(x_2, sigmas[i + 1] * s_in)) / sigmas[i + 1]
            x = x + (d + d_2) / 2 * dt
    return x
