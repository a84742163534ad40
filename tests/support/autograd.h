// Gradients of tensors, by torch::autograd::grad(). Its header carries no promise, so tests include it here only.
#pragma once

#include <torch/csrc/autograd/autograd.h>
