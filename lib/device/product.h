// Matrix products on CPUs by whichever of libtorch's two libraries is faster.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainopt {

/// result = a · b, as at::mm_out(). libtorch leaves products of float32 to MKL. On AMD CPUs with AVX-512 they are
/// oneDNN's here: for [512, 384] · [384, 50257] it took 0.82 of MKL's time on two cores of the fourth EPYC generation.
void product_out(at::Tensor& result, const at::Tensor& a, const at::Tensor& b);

}  // namespace trainopt
