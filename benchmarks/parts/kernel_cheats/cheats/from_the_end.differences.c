/* right where the arrays are two: in one it reads what the original has written by then */
void differences(int n, const float *x, float *y) {
    for (int i = n - 1; i > 0; i--) y[i] = x[i] - 0.5f * x[i - 1];
    if (n > 0) y[0] = x[0];
}
