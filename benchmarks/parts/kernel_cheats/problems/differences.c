// refork: n=20000 x=n:in y=n:out alias=y:x
void differences(int n, const float *x, float *y) {
    for (int i = 0; i < n; i++) y[i] = x[i] - (i ? 0.5f * x[i - 1] : 0);
}
