#pragma once
#include "core.h"
#include <cmath>
namespace eg {
#define U(n, e) template<class T> EG_FN T n(T x){ return e; }
U(abs, std::fabs(x)) U(exp,std::exp(x)) U(exp2,std::exp2(x)) U(expm1,std::expm1(x)) U(log,std::log(x)) U(log1p,std::log1p(x)) U(log2,std::log2(x)) U(log10,std::log10(x)) U(tanh,std::tanh(x)) U(erf,std::erf(x)) U(erfc,std::erfc(x)) U(sqrt,std::sqrt(x)) U(floor,std::floor(x)) U(ceil,std::ceil(x)) U(rint,std::rint(x)) U(trunc,std::trunc(x)) U(sign, x>0?T(1):x<0?T(-1):x)
template<class T> EG_FN T maximum(T a,T b){return a!=a?a: a>b?a:b;} template<class T> EG_FN T minimum(T a,T b){return a!=a?a:a<b?a:b;} template<class T> EG_FN T copysign(T a,T b){return std::copysign(a,b);}
U(sin,std::sin(x)) U(cos,std::cos(x)) U(tan,std::tan(x)) U(sinh,std::sinh(x)) U(cosh,std::cosh(x)) U(arcsin,std::asin(x)) U(arccos,std::acos(x)) U(arctan,std::atan(x)) U(arcsinh,std::asinh(x)) U(arccosh,std::acosh(x)) U(arctanh,std::atanh(x)) U(cbrt,std::cbrt(x))
template<class T> EG_FN T arctan2(T a,T b){return std::atan2(a,b);} template<class T> EG_FN T hypot(T a,T b){return std::hypot(a,b);} template<class T> EG_FN T power(T a,T b){return std::pow(a,b);} template<class T> EG_FN T fmod(T a,T b){return std::fmod(a,b);}
}
