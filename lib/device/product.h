// Matrix products on CPUs by whichever of libtorch's two libraries is faster.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainopt {

/// result = a · b, as at::mm_out(). libtorch leaves products of float32 to MKL. On AMD CPUs with AVX-512 those of wide
/// results are oneDNN's here: it took 0.82 of MKL's time for [512, 384] · [384, 50257] on two cores of the fourth EPYC
/// generation (libtorch 2.11.0).
void product_out(at::Tensor& result, const at::Tensor& a, const at::Tensor& b);

}  // namespace trainopt
