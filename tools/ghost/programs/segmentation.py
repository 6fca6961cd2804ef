"""DeepLabV3 of torchvision, in single precision."""
import sys

import torch
import torchvision

batch = int(sys.argv[1]) if len(sys.argv) > 1 else 8
model = torchvision.models.segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=21).cuda().train()
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
for step in range(20):
    images, labels = torch.randn(batch, 3, 256, 256).cuda(), torch.randint(0, 21, (batch, 256, 256)).cuda()
    loss = torch.nn.functional.cross_entropy(model(images)["out"], labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
