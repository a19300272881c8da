// refork: n=40 m=44 r=5 x=n*m w=r*r y=(n-r+1)*(m-r+1):out
void convolution(int n, int m, int r, const float *x, const float *w, float *y) {
    for (int i = 0; i + r <= n; i++)
        for (int j = 0; j + r <= m; j++) {
            float s = 0;
            for (int p = 0; p < r; p++)
                for (int q = 0; q < r; q++) s += x[(i + p) * m + j + q] * w[p * r + q];
            y[i * (m - r + 1) + j] = s;
        }
}
