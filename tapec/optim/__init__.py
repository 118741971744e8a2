"""Optimisers and learning-rate schedules.

>>> import tapec
>>> w = tapec.tensor(1.0, requires_grad=True)
>>> optimizer = tapec.optim.SGD([w], lr=0.1)
>>> (w**2).backward()
>>> optimizer.step()
>>> w
tensor(0.8000, requires_grad=True)
"""

from tapec.optim import lr_scheduler
from tapec.optim.lbfgs import LBFGS
from tapec.optim.optimizer import Optimizer
from tapec.optim.rules import SGD, Adagrad, Adam, AdamW, RMSprop

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "LBFGS", "Optimizer", "RMSprop", "lr_scheduler"]
