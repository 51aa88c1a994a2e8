"""The workloads in Opacus, on PyTorch: `hooks` (per-example gradients materialised) and `ghost` (ghost clipping).

Layers that Opacus has its own version of (attention, LSTM) are PyTorch's own on the plain side. PyTorch's LSTM has two
biases where Keras has one: 256 weights more.
"""

import warnings

import numpy as np
import opacus
import torch
from opacus.layers import DPLSTM, DPMultiheadAttention
from torch import nn

from benchmarks.peers import measure
from benchmarks.peers.measure import Setting
from benchmarks.workloads import Workload

warnings.filterwarnings("ignore")


class Block(nn.Module):
    def __init__(self, entering: int, width: int, stride: int, groups: int = 16):
        super().__init__()
        self.first = nn.Conv2d(entering, width, 3, stride, 1, bias=False)
        self.first_norm = nn.GroupNorm(groups, width)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.second_norm = nn.GroupNorm(groups, width)
        self.straight = nn.Sequential()
        if stride > 1 or entering != width:
            self.straight = nn.Sequential(
                nn.Conv2d(entering, width, 1, stride, bias=False), nn.GroupNorm(groups, width)
            )

    def forward(self, x):
        y = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(y)) + self.straight(x))


class Mean(nn.Module):
    """The mean over some axes."""

    def __init__(self, *axes: int):
        super().__init__()
        self.axes = axes

    def forward(self, x):
        return x.mean(self.axes)


class EncoderBlock(nn.Module):
    def __init__(self, private: bool, width: int = 64, heads: int = 4):
        super().__init__()
        kind = DPMultiheadAttention if private else nn.MultiheadAttention
        self.attention = kind(width, heads, batch_first=True)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x):
        x = self.first_norm(x + self.attention(x, x, x, need_weights=False)[0])
        return self.second_norm(x + self.narrow(torch.relu(self.wide(x))))


class Transformer(nn.Module):
    def __init__(self, private: bool, words: int = 10_000, length: int = 128, width: int = 64):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(EncoderBlock(private), EncoderBlock(private))
        self.head = nn.Linear(width, 2)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1]).repeat(
            len(tokens), 1
        )  # ghost clipping wants indices that lie side by side
        return self.head(self.blocks(self.words(tokens) + self.places(places)).mean(1))


class Lstm(nn.Module):
    def __init__(self, private: bool, words: int = 10_000, width: int = 32, units: int = 64):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.lstm = (DPLSTM if private else nn.LSTM)(width, units, batch_first=True)
        self.head = nn.Linear(units, 2)

    def forward(self, tokens):
        return self.head(self.lstm(self.words(tokens))[0][:, -1])


class Ncf(nn.Module):
    def __init__(self, users: int = 6040, movies: int = 3706):
        super().__init__()
        self.user_factors, self.movie_factors = nn.Embedding(users, 5), nn.Embedding(movies, 5)
        self.users, self.movies = nn.Embedding(users, 10), nn.Embedding(movies, 10)
        self.head = nn.Linear(25, 5)

    def forward(self, pairs):
        user, movie = pairs[:, 0], pairs[:, 1]
        factors = self.user_factors(user) * self.movie_factors(movie)
        return self.head(torch.cat([factors, self.users(user), self.movies(movie)], 1))


def resnet18() -> nn.Module:
    widths = [
        (64, 64, 1),
        (64, 64, 1),
        (64, 128, 2),
        (128, 128, 1),
        (128, 256, 2),
        (256, 256, 1),
        (256, 512, 2),
        (512, 512, 1),
    ]
    stem = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.GroupNorm(16, 64), nn.ReLU()]
    return nn.Sequential(*stem, *(Block(*sizes) for sizes in widths), Mean(2, 3), nn.Linear(512, 10))


def network(kind: str, private: bool) -> nn.Module:
    torch.manual_seed(0)
    makers = {
        "mlp": lambda: nn.Sequential(nn.Linear(123, 16), nn.ReLU(), nn.Linear(16, 2)),
        "cnn": lambda: nn.Sequential(
            *(nn.Conv2d(1, 16, 8, 2, 3), nn.ReLU(), nn.MaxPool2d(2, 1)),
            *(nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1)),
            *(nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10)),
        ),
        "lenet": lambda: nn.Sequential(
            *(nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 16, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)),
        ),
        "resnet18": resnet18,
        "text": lambda: nn.Sequential(
            nn.Embedding(10_000, 16), Mean(1), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2)
        ),
        "transformer": lambda: Transformer(private),
        "lstm": lambda: Lstm(private),
        "ncf": Ncf,
    }
    return makers[kind]()


def records(workload: Workload, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = workload.records(rows)
    if isinstance(x, dict):
        x = np.stack([x["user"], x["movie"]], axis=1)
    if x.ndim == 4:
        # A true copy: `ascontiguousarray` leaves one channel its strides, PyTorch takes it for channels-last from there on,
        # and of channels-last activations Opacus computes wrong gradients.
        x = np.array(x.transpose(0, 3, 1, 2), order="C", copy=True)
    x = torch.from_numpy(x if x.dtype == np.float32 else x.astype(np.int64))
    return x, torch.from_numpy(y.astype(np.int64))


class TorchSide:
    def __init__(self, workload: Workload, method: str, setting: Setting):
        self.x, self.y = records(workload, setting.lot)
        self.model, self.loss = network(workload.kind, method != "plain"), nn.CrossEntropyLoss()
        kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[setting.optimizer]
        self.optimizer = kind(self.model.parameters(), lr=setting.rate)
        if method != "plain":
            self._make_private(method, setting)
        self.model.train()

    def _make_private(self, method: str, setting: Setting) -> None:
        # The loader only says how large a lot is expected to be: steps are taken on the lot in memory.
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(self.x, self.y), batch_size=setting.lot)
        made = opacus.PrivacyEngine(accountant="rdp").make_private(
            module=self.model,
            optimizer=self.optimizer,
            criterion=self.loss,
            data_loader=loader,
            noise_multiplier=setting.noise,
            max_grad_norm=setting.clip,
            poisson_sampling=False,
            grad_sample_mode=method,
        )
        self.model, self.optimizer = made[:2]
        if method == "ghost":
            self.loss = made[2]

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.loss(self.model(self.x), self.y).backward()
            self.optimizer.step()

    def weights(self) -> np.ndarray:
        return _flat(p.detach() for p in self.model.parameters())


def _flat(tensors) -> np.ndarray:
    return torch.cat([t.reshape(-1) for t in tensors]).numpy().copy()


class Opacus:
    library, module = "opacus", "benchmarks.peers.run_opacus"
    packages = ("opacus", "torch", "numpy")
    methods = ("plain", "hooks", "ghost")

    def side(self, workload: Workload, method: str, setting: Setting) -> TorchSide:
        return TorchSide(workload, method, setting)

    def example_gradients(self, workload: Workload, method: str, rows: int) -> np.ndarray:
        model, loss = network(workload.kind, method != "plain"), nn.CrossEntropyLoss()
        x, y = records(workload, rows)
        found = []
        for i in range(rows):
            found.append(_flat(torch.autograd.grad(loss(model(x[i : i + 1]), y[i : i + 1]), list(model.parameters()))))
        return np.stack(found)


if __name__ == "__main__":
    measure.exit_with(Opacus(), __doc__)
