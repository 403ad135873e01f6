"""A training loop by hand: a network, its gradients, Adam, a checkpoint."""

import tempfile
from pathlib import Path

import eagergrad as eg
from eagergrad.data import batches, load_digits


def layer(n, m):
    """Weights by He's rule, so that the signal keeps its size through the relus."""
    weight = eg.random.normal(0, (2 / n) ** 0.5, (n, m))
    return eg.Variable(weight), eg.Variable(eg.zeros(m))


def predict(layers, x):
    (w1, b1), (w2, b2) = layers
    return eg.relu(x @ w1 + b1) @ w2 + b2  # (n, 64) -> (n, 10)


def accuracy(layers):
    return eg.mean(eg.argmax(predict(layers, x_test), axis=1) == y_test).item()


digits = load_digits()
x_train = eg.tensor(digits.train_images.reshape(-1, 64))
y_train = eg.tensor(digits.train_labels)
x_test = eg.tensor(digits.test_images.reshape(-1, 64))
y_test = eg.tensor(digits.test_labels)

eg.random.seed(1)
layers = [layer(64, 128), layer(128, 10)]
adam = eg.optim.Adam(learning_rate=0.01)


@eg.implicit_value_and_gradients
def loss_and_gradients(x, y):
    return eg.mean(eg.softmax_cross_entropy(predict(layers, x), y))


for epoch in range(1, 11):
    for x, y in batches(x_train, y_train, 64, eg.random.permutation(len(x_train))):
        loss, pairs = loss_and_gradients(x, y)
        adam.apply_gradients(pairs)
    if epoch % 2 == 0:
        print(f"epoch {epoch:2}      test accuracy {accuracy(layers):.2f}")

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "digits.safetensors")
    eg.save(path, layers)
    print(f"loaded again  test accuracy {accuracy(eg.load(path)):.2f}")

# Output:
# epoch  2      test accuracy 0.95
# epoch  4      test accuracy 0.97
# epoch  6      test accuracy 0.98
# epoch  8      test accuracy 0.97
# epoch 10      test accuracy 0.98
# loaded again  test accuracy 0.98
