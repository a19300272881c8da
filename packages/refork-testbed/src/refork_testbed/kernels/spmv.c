// refork: rows=80 nnz=900 start=rows+1:in:offsets:nnz col=nnz:in:index:rows val=nnz x=rows y=rows:out
void spmv(int rows, const int *start, const int *col, const float *val, const float *x, float *y) {
    for (int r = 0; r < rows; r++) {
        float s = 0;
        for (int k = start[r]; k < start[r + 1]; k++) s += val[k] * x[col[k]];
        y[r] = s;
    }
}
