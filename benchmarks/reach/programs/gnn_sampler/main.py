"""GraphSAGE over sampled neighbourhoods."""

import sys

import torch
import yaml
from step_clock import StepClock
from torch import nn
from torch.utils.data import DataLoader


class Graph:
    def __init__(self, nodes, degree, features):
        g = torch.Generator().manual_seed(0)
        self.neighbours = torch.randint(nodes, (nodes, degree), generator=g)
        self.x = torch.randn(nodes, features, generator=g)
        self.y = self.x[:, :12].argmax(1)


class Data:
    """What a batch holds: nodes of the sampled graph, its edges, and how many seeds come first."""

    def __init__(self, x, edge_index, y, batch_size):
        self.x, self.edge_index, self.y, self.batch_size = x, edge_index, y, batch_size


class NeighborLoader(DataLoader):
    def __init__(self, graph, fanouts, **kwargs):
        self.graph, self.fanouts = graph, fanouts
        super().__init__(range(len(graph.x)), collate_fn=self.sample, **kwargs)

    def sample(self, seeds):
        seeds = torch.tensor(seeds)
        nodes, sources, targets, front = [seeds], [], [], seeds
        count, begin = len(seeds), 0
        for fanout in self.fanouts:
            picks = torch.randint(self.graph.neighbours.shape[1], (len(front), fanout))
            found = self.graph.neighbours[front[:, None], picks].reshape(-1)
            sources.append(torch.arange(count, count + len(found)))
            targets.append(torch.arange(begin, begin + len(front)).repeat_interleave(fanout))
            begin, count = count, count + len(found)
            nodes.append(found)
            front = found
        x = self.graph.x[torch.cat(nodes)]
        edge_index = torch.stack([torch.cat(sources), torch.cat(targets)])
        return Data(x, edge_index, self.graph.y[seeds], len(seeds))


class SAGEConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own, self.others = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs)

    def forward(self, x, edge_index):
        source, target = edge_index
        sums = torch.zeros_like(x).index_add_(0, target, x[source])
        many = torch.zeros(len(x)).index_add_(0, target, torch.ones(len(target)))
        return self.own(x) + self.others(sums / many.clamp(min=1)[:, None])


class SAGE(nn.Module):
    def __init__(self, inputs, hidden, layers, outputs):
        super().__init__()
        widths = [inputs, *[hidden] * (layers - 1), outputs]
        self.convs = nn.ModuleList(SAGEConv(a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, x, edge_index):
        for conv in self.convs[:-1]:
            x = conv(x, edge_index).relu()
        return self.convs[-1](x, edge_index)


def main(cfg):
    torch.manual_seed(0)
    graph, s = Graph(**cfg["graph"]), cfg["sampler"]
    loader = NeighborLoader(
        graph,
        s["fanouts"],
        batch_size=s["seeds_per_batch"],
        shuffle=True,
        num_workers=s["num_workers"],
    )
    m = cfg["model"]
    model = SAGE(cfg["graph"]["features"], m["hidden_channels"], m["num_layers"], m["num_classes"])
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg["optim"]["lr"])
    clock = StepClock()
    for epoch in range(cfg["optim"]["epochs"]):
        for batch in loader:
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = nn.functional.cross_entropy(out, batch.y)
            loss.backward()
            optimizer.step()
            clock.tick(batch.batch_size)
        print(f"Epoch: {epoch:03d}, Loss: {loss:.4f}")


if __name__ == "__main__":
    main(yaml.safe_load(open(sys.argv[1])))
