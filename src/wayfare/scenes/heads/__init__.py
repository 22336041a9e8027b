"""The four relation heads as networks, each with its paper's equations: IMP, MOTIFS, VCTree and GPS-Net."""
