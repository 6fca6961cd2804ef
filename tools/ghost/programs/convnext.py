"""ConvNeXt (tiny) of torchvision: depthwise convolutions, an average of the weights beside them."""
import sys

import torch
import torchvision

batch = int(sys.argv[1]) if len(sys.argv) > 1 else 32
model = torchvision.models.convnext_tiny(num_classes=100).cuda().train()
average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
for step in range(20):
    images, labels = torch.randn(batch, 3, 224, 224).cuda(), torch.randint(0, 100, (batch,)).cuda()
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    average.update_parameters(model)
    print(step, loss.item(), flush=True)
