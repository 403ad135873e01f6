"""Two small models, written once for all sides, and the data they are trained on.

``ops`` has what libraries name differently.  "cnn": two 3x3 convolutions with pooling
and a dense layer, on 32 images.  "transformer": a character model of 4 layers, 128
wide, with 4 heads, on 8 sequences of 64.
"""

import math

import numpy as np

BATCH, IMAGE, CLASSES, CHANNELS = 32, (3, 32, 32), 10, (16, 32)
LAYERS, WIDTH, HEADS, LENGTH, SEQUENCES, CHARACTERS = 4, 128, 4, 64, 8, 96


def _normal(rng, n, *shape):
    """Weights for sums of n terms."""
    return rng.normal(0, 1 / math.sqrt(n), shape).astype(np.float32)


def _zeros(*shape):
    return np.zeros(shape, np.float32)


def cnn_start():
    """Parameters, images and labels."""
    rng = np.random.default_rng(0)
    first, second = CHANNELS
    features = second * (IMAGE[1] // 4) * (IMAGE[2] // 4)
    params = [
        *(_normal(rng, IMAGE[0] * 9, first, IMAGE[0], 3, 3), _zeros(first, 1, 1)),
        *(_normal(rng, first * 9, second, first, 3, 3), _zeros(second, 1, 1)),
        *(_normal(rng, features, features, CLASSES), _zeros(CLASSES)),
    ]
    images = rng.normal(size=(BATCH, *IMAGE)).astype(np.float32)
    return params, images, rng.integers(CLASSES, size=BATCH)


def cnn_loss(ops, params, images, labels):
    w1, b1, w2, b2, w3, b3 = params
    h = ops.max_pool(ops.relu(ops.conv(images, w1) + b1))
    h = ops.max_pool(ops.relu(ops.conv(h, w2) + b2))
    return ops.cross_entropy(h.reshape(BATCH, -1) @ w3 + b3, labels)


def transformer_start():
    """Parameters, characters and the characters that follow them."""
    rng = np.random.default_rng(0)
    params = [
        _normal(rng, WIDTH, CHARACTERS, WIDTH),
        _normal(rng, WIDTH, LENGTH, WIDTH),
    ]
    for _ in range(LAYERS):
        params += [
            *(1 + _zeros(WIDTH), _zeros(WIDTH), _normal(rng, WIDTH, WIDTH, 3 * WIDTH)),
            _normal(rng, WIDTH, WIDTH, WIDTH),
            *(1 + _zeros(WIDTH), _zeros(WIDTH), _normal(rng, WIDTH, WIDTH, 4 * WIDTH)),
            *(_zeros(4 * WIDTH), _normal(rng, 4 * WIDTH, 4 * WIDTH, WIDTH)),
            _zeros(WIDTH),
        ]
    params += [1 + _zeros(WIDTH), _zeros(WIDTH), _normal(rng, WIDTH, WIDTH, CHARACTERS)]
    text = rng.integers(CHARACTERS, size=(SEQUENCES, LENGTH + 1))
    return params, text[:, :-1].copy(), text[:, 1:].reshape(-1)


def transformer_loss(ops, params, characters, following):
    table, positions, *params = params
    x = ops.embedding(table, characters) + positions
    for i in range(0, 10 * LAYERS, 10):
        gain, shift, into, out, gain_2, shift_2, w1, b1, w2, b2 = params[i : i + 10]
        h = ops.layer_norm(x, gain, shift) @ into
        h = h.reshape(SEQUENCES, LENGTH, 3, HEADS, WIDTH // HEADS)
        h = ops.transpose(h, (2, 0, 3, 1, 4))
        h = ops.transpose(ops.causal_attention(h[0], h[1], h[2]), (0, 2, 1, 3))
        x = x + h.reshape(SEQUENCES, LENGTH, WIDTH) @ out
        h = ops.layer_norm(x, gain_2, shift_2)
        x = x + ops.gelu(h @ w1 + b1) @ w2 + b2
    gain, shift, out = params[-3:]
    logits = ops.layer_norm(x, gain, shift) @ out
    return ops.cross_entropy(logits.reshape(-1, CHARACTERS), following)


MODELS = {
    "cnn": (cnn_start, cnn_loss),
    "transformer": (transformer_start, transformer_loss),
}
