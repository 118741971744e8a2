"""Automatic differentiation of recorded graphs, under PyTorch's names.

>>> import tapec
>>> x = tapec.tensor(3.0, requires_grad=True)
>>> tapec.autograd.grad(x**3, x)
(tensor(27.),)
"""

from tapec.autograd import functional, graph
from tapec.autograd.anomaly import detect_anomaly, set_detect_anomaly
from tapec.autograd.engine import backward
from tapec.autograd.engine import gradients as grad
from tapec.autograd.function import Function
from tapec.autograd.grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled
from tapec.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck

__all__ = [
    "Function", "GradcheckError", "backward", "detect_anomaly", "enable_grad", "functional",
    "grad", "gradcheck", "gradgradcheck", "graph", "inference_mode", "no_grad",
    "set_detect_anomaly", "set_grad_enabled",
]  # fmt: skip
