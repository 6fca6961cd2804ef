"""A loop that asks the card what the host told it: the largest length, how many are padded, whether a mask is full."""
import torch
from torch import nn

words, width, batch = 1000, 256, 16
table = nn.Embedding(words, width).cuda()
layer = nn.LSTM(width, width, batch_first=True).cuda()
head = nn.Linear(width, words).cuda()
optimizer = torch.optim.AdamW([*table.parameters(), *layer.parameters(), *head.parameters()])
for step in range(20):
    lengths = torch.randint(20, 90, (batch,), generator=torch.Generator().manual_seed(step)).cuda()
    lengths[3] = 100
    longest = int(lengths.max())
    mask = torch.arange(longest, device="cuda")[None, :] < lengths[:, None]
    if longest != 100 or mask.shape != (batch, 100) or bool(mask.all()):
        raise RuntimeError(f"the longest is 100, not {longest}")
    count = mask.sum()
    if count.item() != sum(lengths.tolist()) or int(mask.sum(1).min()) != min(lengths.cpu()):
        raise RuntimeError(f"{count.item()} places are said to be filled")
    ids = torch.randint(0, words, (batch, longest), device="cuda")
    packed = nn.utils.rnn.pack_padded_sequence(table(ids), lengths.cpu(), batch_first=True, enforce_sorted=False)
    found, _ = nn.utils.rnn.pad_packed_sequence(layer(packed)[0], batch_first=True)
    losses = nn.functional.cross_entropy(head(found).flatten(0, 1), ids.flatten(), reduction="none")
    loss = (losses * mask.flatten()).sum() / count
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
