"""Torch operators: native code on plain CPU tensors, plain torch or Triton elsewhere, gradients of any order.

``native`` says when native code may be called and registers operators; every other file holds one kind.
"""
