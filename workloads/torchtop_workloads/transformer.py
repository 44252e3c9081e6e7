"""Transformers as they are in every textbook, of any size. torch alone, also old releases of it."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from torch import Tensor, nn

SPREAD = 0.02
"""Standard deviation of the initial weights, as of BERT and GPT-2."""


class Attention(nn.Module):
    """Multi-head self-attention.

    Args:
        width: of the input and the output.
        heads: number of heads; divides the width.
        causal: whether a token sees only those before it.
        dropout: of the attention weights.
    """

    def __init__(self, width: int, heads: int, causal: bool, dropout: float) -> None:
        super().__init__()
        self._heads = heads
        self._causal = causal
        self._dropout = dropout
        self.mix = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, values: Tensor) -> Tensor:
        """Attend within each sequence (batch, length, width)."""
        batch, length, width = values.shape
        shape = (batch, length, 3, self._heads, width // self._heads)
        query, key, value = self.mix(values).view(shape).permute(2, 0, 3, 1, 4).unbind(0)
        dropout = self._dropout if self.training else 0.0
        if hasattr(F, "scaled_dot_product_attention"):
            seen = F.scaled_dot_product_attention(
                query, key, value, dropout_p=dropout, is_causal=self._causal
            )
        else:
            seen = _attend(query, key, value, dropout, self._causal)
        mixed: Tensor = self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return mixed


def _attend(query: Tensor, key: Tensor, value: Tensor, dropout: float, causal: bool) -> Tensor:
    """What ``scaled_dot_product_attention`` does, for releases before 2.0."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if causal:
        length = query.shape[-2]
        hidden = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    return F.dropout(scores.softmax(-1), dropout) @ value


class Block(nn.Module):
    """Attention and a perceptron, each beside a shortcut.

    Args:
        width: of the input and the output.
        heads: of the attention.
        causal: see `Attention`.
        dropout: before each sum.
        first: whether to normalise before the two (GPT-2) or after (BERT).
    """

    def __init__(self, width: int, heads: int, causal: bool, dropout: float, first: bool) -> None:
        super().__init__()
        self._first = first
        self.attention = Attention(width, heads, causal, dropout)
        self.perceptron = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.dropout = nn.Dropout(dropout)

    def forward(self, values: Tensor) -> Tensor:
        """One layer of (batch, length, width)."""
        for norm, part in zip(self.norms, (self.attention, self.perceptron)):  # noqa: B905
            if self._first:
                values = values + self.dropout(part(norm(values)))
            else:
                values = norm(values + self.dropout(part(values)))
        return values


class Encoder(nn.Module):
    """BERT's encoder with a classifier on its first token.

    Args:
        vocab: number of different tokens.
        width: of all layers.
        layers: number of layers.
        heads: of each layer.
        length: tokens in the longest sequence.
        classes: outputs.
        dropout: as everywhere in BERT.
    """

    def __init__(
        self,
        vocab: int,
        width: int,
        layers: int,
        heads: int,
        length: int,
        classes: int = 2,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.places = nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        blocks = [Block(width, heads, False, dropout, False) for _ in range(layers)]
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Dropout(dropout))
        self.classify = nn.Linear(width, classes)
        self.apply(_initialise)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores (batch, classes) of sequences of token numbers (batch, length)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        values = self.dropout(self.norm(self.tokens(tokens) + self.places(places)))
        scores: Tensor = self.classify(self.pool(self.blocks(values)[:, 0]))
        return scores


class Decoder(nn.Module):
    """GPT-2: what comes next after each token. Input and output share their embedding.

    Args:
        vocab: number of different tokens.
        width: of all layers.
        layers: number of layers.
        heads: of each layer.
        length: tokens in the longest sequence.
        dropout: none, as is usual where data is plenty.
    """

    def __init__(
        self, vocab: int, width: int, layers: int, heads: int, length: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.places = nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        blocks = [Block(width, heads, True, dropout, True) for _ in range(layers)]
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(width)
        self.apply(_initialise)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores (batch, length, vocab) of the token after each of (batch, length)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        values = self.dropout(self.tokens(tokens) + self.places(places))
        return F.linear(self.norm(self.blocks(values)), self.tokens.weight)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=SPREAD)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
