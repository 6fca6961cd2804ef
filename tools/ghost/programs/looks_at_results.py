"""A loop that looks at everything it computes: losses, norms, masks, early stops, samples. It must end, whatever it sees."""
import torch
from torch import nn

words, width = 1000, 256
model = nn.Sequential(nn.Embedding(words, width), nn.TransformerEncoderLayer(width, 4, batch_first=True), nn.Linear(width, words)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
best, patience, history = float("inf"), 3, []
for step in range(50):
    ids = torch.randint(0, words, (8, 64), device="cuda")
    kept = ids[ids > 10]
    scores = model(ids)
    losses = nn.functional.cross_entropy(scores.flatten(0, 1), ids.flatten(), reduction="none")
    hard = losses[losses > losses.mean()]
    loss = hard.mean() if hard.numel() else losses.mean()
    if not torch.isfinite(loss):
        raise RuntimeError("the loss is not finite")
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
    optimizer.step()
    scheduler.step(loss.item())
    history.append((loss.item(), float(norm), kept.shape[0], scores.argmax(-1).eq(ids).float().mean().item()))
    patience = 3 if history[-1][0] < best else patience - 1
    best = min(best, history[-1][0])
    text = ids[:1, :4]
    while text.shape[1] < 20:  # until an end is written, or twenty words
        word = torch.multinomial(model(text)[:, -1].softmax(-1), 1)
        text = torch.cat([text, word], 1)
        if (word == 0).all():
            break
    top = torch.topk(losses, 5).indices.tolist()
    print(step, history[-1], text.tolist(), top, torch.unique(ids).numel(), flush=True)
    if patience == 0:
        break
