// refork: rows=20 cols=64 wall=rows*cols:in:positive dst=cols:out src=cols:inout
void path_costs(int rows, int cols, const int *wall, int *dst, int *src) {
    for (int n = 0; n < cols; n++) dst[n] = wall[n];
    for (int t = 1; t < rows; t++) {
        for (int n = 0; n < cols; n++) src[n] = dst[n];
        for (int n = 0; n < cols; n++) {
            int min = src[n];
            if (n > 0) min = src[n - 1] < min ? src[n - 1] : min;
            if (n < cols - 1) min = src[n + 1] < min ? src[n + 1] : min;
            dst[n] = wall[t * cols + n] + min;
        }
    }
}
