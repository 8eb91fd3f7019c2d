from __future__ import annotations

import torch

from llm360.model.rotary import CrystalRotary, rotate


def test_rotation_keeps_lengths_and_depends_on_distance_alone():
    torch.manual_seed(1)
    rotary = CrystalRotary(8)
    query, key = torch.randn(2, 1, 1, 1, 16).unbind()
    scores = [
        (rotate(query, *rotary(torch.tensor([[i + 5]]))) * rotate(key, *rotary(torch.tensor([[i]])))).sum()
        for i in (0, 3, 900)
    ]
    torch.testing.assert_close(torch.stack(scores), scores[0].expand(3), rtol=1e-4, atol=1e-4)
    turned = rotate(query, *rotary(torch.tensor([[700]])))
    torch.testing.assert_close(turned.norm(), query.norm())
    assert torch.equal(turned[..., 8:], query[..., 8:])


def test_pairs_are_neighbours():
    cos, sin = CrystalRotary(4)(torch.tensor([[1]]))
    turned = rotate(torch.tensor([1.0, 0.0, 0.0, 1.0, 7.0, 8.0]).view(1, 1, 1, 6), cos, sin).flatten()
    first, second = torch.tensor(1.0), torch.tensor(0.01)
    expected = [first.cos(), first.sin(), -second.sin(), second.cos(), 7.0, 8.0]
    torch.testing.assert_close(turned, torch.tensor(expected))


def test_frequencies_come_back_from_the_meta_device():
    with torch.device("meta"):
        rotary = CrystalRotary(32)
    assert rotary.inv_freq.is_meta
    assert torch.equal(rotary.to_empty(device="cpu").inv_freq, CrystalRotary(32).inv_freq)


def test_a_cast_input_keeps_its_dtype():
    cos, sin = CrystalRotary(4)(torch.arange(3)[None])
    assert rotate(torch.ones(1, 2, 3, 8, dtype=torch.bfloat16), cos, sin).dtype == torch.bfloat16
