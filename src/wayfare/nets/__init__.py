"""Networks that several tasks share.

    cnn.py           a small CNN for pictures of any size
    vgg.py           VGG16 with torchvision's names, FedTour's form of it, and a small one
    resnet.py        ResNet18 with torchvision's names
    efficientnet.py  EfficientNet-Lite0, and its ImageNet weights from a package
    dinov2.py        DINOv2 ViT-S/14, a vision transformer
    tinyvit.py       TinyViT-5M
    sentences.py     MiniLM and WordLlama, which read texts
    published.py     the last networks' weights, which `wayfare data get` fetches
    lora.py          low-rank adapters of a frozen transformer's linear layers
    frozen.py        EfficientNet-Lite0 as a frozen trunk, and the linear head that is trained on its features
    trunks.py        DINOv2 as a frozen trunk
    features.py      the frozen trunk's features of pictures, computed once and cached
    cached.py        reading and writing such cached arrays
    pooling.py       from feature maps to a vector
    pretrained.py    weights from a file into a network

Every classifier has `features(x)`, `head`, `head_name` and `feature_dim`.
"""
