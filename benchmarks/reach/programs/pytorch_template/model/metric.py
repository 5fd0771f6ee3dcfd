import torch


def accuracy(output, target):
    with torch.no_grad():
        return (output.argmax(1) == target).float().mean().item()


def top_k_acc(output, target, k=3):
    with torch.no_grad():
        return (output.topk(k, 1).indices == target[:, None]).any(1).float().mean().item()
