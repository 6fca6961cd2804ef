"""torchaudio's Conformer with CTC, sounds of different lengths."""
import sys

import torch
import torchaudio

batch = int(sys.argv[1]) if len(sys.argv) > 1 else 16
model = torchaudio.models.Conformer(input_dim=256, num_heads=4, ffn_dim=1024, num_layers=12,
                                    depthwise_conv_kernel_size=31).cuda().train()
head = torch.nn.Linear(256, 64).cuda()
optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], 1e-4, fused=True)
for step in range(20):
    lengths = torch.randint(400, 501, (batch,), generator=torch.Generator().manual_seed(step)).cuda()
    lengths[0] = 500
    sound = torch.randn(batch, 500, 256).cuda()
    found, found_lengths = model(sound, lengths)
    scores = head(found).log_softmax(-1).transpose(0, 1)
    targets = torch.randint(1, 64, (batch, 30)).cuda()
    loss = torch.nn.functional.ctc_loss(scores, targets, found_lengths, torch.full((batch,), 30).cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
