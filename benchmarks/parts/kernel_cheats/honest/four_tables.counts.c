static int table[4][64];
void counts(int n, const int *x, int *h) {
    for (int k = 0; k < 256; k++) table[k / 64][k % 64] = 0;
    int i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++) table[k][x[i + k]]++;
    for (; i < n; i++) table[0][x[i]]++;
    for (int k = 0; k < 64; k++) h[k] = table[0][k] + table[1][k] + table[2][k] + table[3][k];
}
