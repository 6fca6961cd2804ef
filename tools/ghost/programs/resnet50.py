"""ResNet-50 of torchvision as its reference training goes: SGD, channels last, mixed precision."""
import sys

import torch
import torchvision

batch = int(sys.argv[1]) if len(sys.argv) > 1 else 64
model = torchvision.models.resnet50(num_classes=100).to("cuda", memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
judge = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
for step in range(20):
    images = torch.randn(batch, 3, 224, 224).to("cuda", memory_format=torch.channels_last)
    labels = torch.randint(0, 100, (batch,)).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        loss = judge(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
