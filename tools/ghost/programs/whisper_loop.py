"""Whisper (small) of transformers in a plain loop with autocast and GradScaler."""
import sys

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

batch = int(sys.argv[1]) if len(sys.argv) > 1 else 8
config = WhisperConfig(d_model=768, encoder_layers=12, decoder_layers=12, encoder_attention_heads=12,
                       decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072)
model = WhisperForConditionalGeneration(config).cuda().train()
optimizer = torch.optim.AdamW(model.parameters(), 1e-5)
scaler = torch.amp.GradScaler()
for step in range(20):
    sound = torch.randn(batch, 80, 3000, device="cuda")
    labels = torch.randint(0, 51865, (batch, 200), device="cuda")
    with torch.autocast("cuda", torch.float16):
        loss = model(input_features=sound, labels=labels).loss
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print(step, loss.item(), flush=True)
