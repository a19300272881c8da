// The same loop; its flags allow the widest vectors.
// refork: entry=cubic n=16384 x=n y=n:out flops=6*n bytes=8*n rtol=1e-3
void cubic(int n, const float *restrict x, float *restrict y)
{
    for (int i = 0; i < n; i++)
        y[i] = ((0.25f * x[i] + 0.5f) * x[i] - 0.125f) * x[i] + 1.0f;
}
