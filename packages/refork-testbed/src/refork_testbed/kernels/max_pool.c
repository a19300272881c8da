// refork: n=20 m=24 x=4*n*m y=n*m:out
void max_pool(int n, int m, const float *x, float *y) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            float best = x[2 * i * 2 * m + 2 * j];
            for (int p = 0; p < 2; p++)
                for (int q = 0; q < 2; q++) {
                    float v = x[(2 * i + p) * 2 * m + 2 * j + q];
                    if (v > best) best = v;
                }
            y[i * m + j] = best;
        }
}
