# SPDX-License-Identifier: Apache-2.0 OR MIT
"""PyTorch Geometric: networks on a random graph train to the CPU's loss. Prints `same NAME: passed` for each, and the time of a step
(`time …`)."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

from checks import check
from rounds import report

NODES, EDGES, WIDTH, CLASSES, STEPS = 5000, 40000, 64, 7, 10
NETWORKS = {"GCN": GCNConv, "GAT": lambda width, out: GATConv(width, out, heads=2, concat=False), "SAGE": SAGEConv}


class Network(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.first, self.second = layer(WIDTH, WIDTH), layer(WIDTH, CLASSES)

    def forward(self, x, edges):
        return self.second(F.relu(self.first(x, edges)), edges)


def training(layer, device):
    """Returns a function that makes a step and returns its loss."""
    torch.manual_seed(0)
    x, labels = torch.randn(NODES, WIDTH).to(device), torch.randint(CLASSES, (NODES,)).to(device)
    edges = torch.randint(NODES, (2, EDGES)).to(device)
    network = Network(layer).to(device)
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(network(x, edges), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def losses(layer, device):
    step = training(layer, device)
    return torch.stack([step() for _ in range(STEPS)]).cpu()


def compare(layer):
    ours, expected = losses(layer, "cuda"), losses(layer, "cpu")
    assert expected[-1] < 0.98 * expected[0], f"the loss fell from {expected[0]} to {expected[-1]} only"
    assert torch.allclose(ours, expected, rtol=1e-2), f"{ours.tolist()} instead of {expected.tolist()}"


for name, layer in NETWORKS.items():
    check(name, compare, layer)
    report(f"a step of {name}", training(layer, "cuda"))
