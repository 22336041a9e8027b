"""Place recognition: where was this photo taken?

The network describes a photograph by a vector, its descriptor, so that photographs of one place have similar
descriptors. It implements FedVPR (Dutto et al., Collaborative Visual Place Recognition through Federated Learning,
2024). A photo is located by finding the nearest descriptors among photographs whose positions are known.

Where the paper is:

    Eq. 1, the positive of a query: nearest in feature space within 25 m       mining.py, Miner.mine
    Eq. 2, its negatives: nearest in feature space beyond 25 m                 mining.py, a class for each way
    Eq. 3, the triplet loss                                                    losses.py
    Sec. 4, splits into clients, Tab. 1 and Fig. 4, 5                          partition/
    Tab. 2, networks and poolings                                              backbones.py, wayfare/nets/pooling.py
    Tab. 5, augmentation                                                       augment.py
    Tab. 6, local mining                                                       mining.py, LocalMiner
    recall and its protocol                                                    recall.py, nearest.py

The path of a photograph through the files, in training:

    data/town.py, msls_photos.py, photo_folder.py   settings of a data set: [data] of a recipe
    data/msls.py, photos.py, frames.py ...          read its layout into a table, data/place_photos.py
    data/train_test.py                              which rows are trained on, tested on, and queries
    samples.py                                      decodes the pictures; holds all that is read
    feature_maps.py                                 the outputs of the frozen layers, cached
    client_photos.py, mining.py                     a client's triplets, as in the paper; or
    views.py                                        batches of places with several views of each, the default recipe's
    augment.py, descriptor.py, losses.py            from pictures to the loss
    task.py                                         puts it together: [task] of a recipe
    model.py, backbones.py, whitening.py            settings of the network: [model] of a recipe

And when a photo is located:

    trained_model.py    the model of a finished run, and descriptors of picture files
    indexing.py         makes an index of photographs whose positions are known (positions.py); index.py reads it
    cells.py            how a large index is searched
    calibration.py      how much an answer can be relied on; leave_one_out.py learns it on the index itself
    locate.py           the nearest photographs as places, a position and a confidence
    page_data.py        the answers as a page
    evaluation.py       how often an index is right, by photographs of known position; evaluation_page.py shows it
"""
