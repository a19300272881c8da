// refork: n=64 rows=20 x=rows*2*n low=rows*n:out high=rows*n:out
void wavelet(int rows, int n, const float *x, float *low, float *high) {
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < n; i++) {
            low[r * n + i] = (x[r * 2 * n + 2 * i] + x[r * 2 * n + 2 * i + 1]) * 0.70710678f;
            high[r * n + i] = (x[r * 2 * n + 2 * i] - x[r * 2 * n + 2 * i + 1]) * 0.70710678f;
        }
}
