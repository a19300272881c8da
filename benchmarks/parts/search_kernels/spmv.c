// refork: entry=spmv rows=32768 nnz=2097152 start=rows+1::offsets:nnz column=nnz::index:rows value=nnz x=rows y=rows:out
// refork: flops=2*nnz bytes=8*nnz+12*rows rtol=1e-4
void spmv(int rows, int nnz, const int *start, const int *column, const float *value, const float *x, float *y) {
    for (int r = 0; r < rows; r++) {
        float sum = 0.0f;
        for (int k = start[r]; k < start[r + 1]; k++)
            sum += value[k] * x[column[k]];
        y[r] = sum;
    }
}
