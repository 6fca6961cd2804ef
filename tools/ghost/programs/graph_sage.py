"""GraphSAGE of torch_geometric on a graph that it makes itself."""
import sys

import torch
import torch_geometric
from torch_geometric.datasets import FakeDataset
from torch_geometric.nn import GraphSAGE

nodes = 1000 * (int(sys.argv[1]) if len(sys.argv) > 1 else 100)
torch_geometric.seed_everything(1)
graph = FakeDataset(num_graphs=1, avg_num_nodes=nodes, avg_degree=8, num_channels=128, num_classes=10, task="node")[0].to("cuda")
model = GraphSAGE(128, 256, num_layers=3, out_channels=10, dropout=0.1).cuda().train()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(20):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(graph.x, graph.edge_index), graph.y)
    loss.backward()
    optimizer.step()
    print(step, float(loss), flush=True)
